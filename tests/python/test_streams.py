"""Scopes and streams: the calls of StreamManager."""
import pravega_client
import pytest


def test_scope_is_created_once(manager, scope):
    assert manager.create_scope(scope) is False
    assert scope in manager.list_scope()


def test_stream_is_created_once(manager, scope):
    assert manager.create_stream(scope, "once", 2) is True
    assert manager.create_stream(scope, "once", 2) is False


def test_listing_shows_every_stream(manager, scope):
    names = {f"stream-{number}" for number in range(25)}  # more than one page
    for name in names:
        manager.create_stream(scope, name, 1)
    assert {name for name in manager.list_stream(scope) if not name.startswith("_")} == names


def test_stream_in_unknown_scope_is_refused(manager):
    with pytest.raises(ValueError):
        manager.create_stream("no-such-scope", "stream", 1)


def test_scope_with_a_stream_is_not_deleted(manager, scope):
    manager.create_stream(scope, "kept", 1)
    with pytest.raises(ValueError):
        manager.delete_scope(scope)
    assert "kept" in manager.list_stream(scope)


def test_unsealed_stream_is_not_deleted(manager, scope):
    manager.create_stream(scope, "open", 1)
    with pytest.raises(ValueError):
        manager.delete_stream(scope, "open")


def test_deleted_stream_is_gone_and_its_name_is_free(manager, scope):
    manager.create_stream(scope, "again", 1)
    manager.create_writer(scope, "again").write_event("old")
    assert manager.seal_stream(scope, "again") and manager.delete_stream(scope, "again")
    assert "again" not in manager.list_stream(scope)
    assert manager.delete_stream(scope, "again") is False
    assert manager.create_stream(scope, "again", 1) is True


def test_tags_are_kept_and_replaced(manager, scope):
    fixed = pravega_client.StreamScalingPolicy.fixed_scaling_policy(3)
    keep = pravega_client.StreamRetentionPolicy.none()
    assert manager.create_stream_with_policy(scope, "tagged", fixed, keep, ["red", "blue"])
    assert sorted(manager.get_stream_tags(scope, "tagged")) == ["blue", "red"]
    assert manager.update_stream_with_policy(scope, "tagged", fixed, keep, ["green"])
    assert manager.get_stream_tags(scope, "tagged") == ["green"]


@pytest.mark.parametrize(
    "scaling",
    [
        pravega_client.StreamScalingPolicy.auto_scaling_policy_by_data_rate(100, 2, 2),
        pravega_client.StreamScalingPolicy.auto_scaling_policy_by_event_rate(100, 2, 2),
    ],
    ids=["data rate", "event rate"],
)
def test_automatic_policies_start_with_their_minimum(manager, controller, scope, scaling):
    keep = pravega_client.StreamRetentionPolicy.by_size(1_000_000)
    assert manager.create_stream_with_policy(scope, "auto", scaling, keep)
    assert [(low, high) for low, high, _ in controller.segments(scope, "auto")] == [(0.0, 0.5), (0.5, 1.0)]


def test_segments_cover_the_key_space_after_each_scaling(manager, controller, scope):
    manager.create_stream(scope, "scaled", 2)
    for action in (controller.split, controller.split, controller.merge):
        action(scope, "scaled", 0)
        bounds = [(low, high) for low, high, _ in controller.segments(scope, "scaled")]
        assert bounds[0][0] == 0.0 and bounds[-1][1] == 1.0
        assert all(left[1] == right[0] for left, right in zip(bounds, bounds[1:]))
    assert len(bounds) == 3
