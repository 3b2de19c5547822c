"""Manual scaling over the controller's gRPC service, which the wheel leaves out.

Only the five messages that scaling needs are described here, by their published field numbers.
"""
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "io.pravega.controller.stream.api.grpc.v1"
SERVICE = f"/{PACKAGE}.ControllerService/"

MESSAGES = {
    "StreamInfo": [("scope", 1, "string"), ("stream", 2, "string")],
    "SegmentId": [("streamInfo", 1, "StreamInfo"), ("segmentId", 2, "int64")],
    "SegmentRange": [("segmentId", 1, "SegmentId"), ("minKey", 2, "double"), ("maxKey", 3, "double")],
    "SegmentRanges": [("segmentRanges", 1, "*SegmentRange")],
    "KeyRangeEntry": [("start", 1, "double"), ("end", 2, "double")],
    "ScaleRequest": [
        ("streamInfo", 1, "StreamInfo"),
        ("sealedSegments", 2, "*int64"),
        ("newKeyRanges", 3, "*KeyRangeEntry"),
        ("scaleTimestamp", 4, "int64"),
    ],
    "ScaleResponse": [("status", 1, "int32"), ("segments", 2, "*SegmentRange"), ("epoch", 3, "int32")],
    "ScaleStatusRequest": [("streamInfo", 1, "StreamInfo"), ("epoch", 2, "int32")],
    "ScaleStatusResponse": [("status", 1, "int32")],
}
SCALE_STARTED, SCALE_DONE, SCALE_RUNNING = 0, 1, 0


def _classes():
    field = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": field.TYPE_STRING, "int32": field.TYPE_INT32, "int64": field.TYPE_INT64, "double": field.TYPE_DOUBLE}
    file = descriptor_pb2.FileDescriptorProto(name="scaling.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added = message.field.add(name=field_name, number=number, label=label)
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type, added.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles(["scaling.proto"], pool)
    return {name: found[f"{PACKAGE}.{name}"] for name in MESSAGES}


class Controller:
    """Splits and merges segments; each call returns once the new epoch is the current one."""

    def __init__(self, uri):
        self._channel = grpc.insecure_channel(uri.removeprefix("tcp://"))
        self._types = _classes()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()

    def _call(self, name, request, reply):
        method = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._types[reply].FromString,
        )
        return method(request, timeout=60)

    def _stream(self, scope, stream):
        return self._types["StreamInfo"](scope=scope, stream=stream)

    def segments(self, scope, stream):
        """The current segments as (low key, high key, id), from the lowest key on."""
        reply = self._call("getCurrentSegments", self._stream(scope, stream), "SegmentRanges")
        return sorted((r.minKey, r.maxKey, r.segmentId.segmentId) for r in reply.segmentRanges)

    def scale(self, scope, stream, sealed, ranges):
        """Seals `sealed` (ids), opens `ranges` (low, high), and waits until the scaling has ended."""
        info, kinds = self._stream(scope, stream), self._types
        request = kinds["ScaleRequest"](
            streamInfo=info,
            sealedSegments=sealed,
            newKeyRanges=[kinds["KeyRangeEntry"](start=low, end=high) for low, high in ranges],
            scaleTimestamp=int(time.time() * 1000),
        )
        started = self._call("scale", request, "ScaleResponse")
        assert started.status == SCALE_STARTED, f"scale refused: {started}"
        deadline, pause = time.monotonic() + 60, threading.Event()
        while True:
            asked = kinds["ScaleStatusRequest"](streamInfo=info, epoch=started.epoch)
            status = self._call("checkScale", asked, "ScaleStatusResponse").status
            if status == SCALE_DONE:
                return
            assert status == SCALE_RUNNING and time.monotonic() < deadline, f"scaling ended with {status}"
            pause.wait(0.02)

    def split(self, scope, stream, index):
        """Replaces the segment at `index` by two halves of its range."""
        low, high, segment = self.segments(scope, stream)[index]
        middle = (low + high) / 2
        self.scale(scope, stream, [segment], [(low, middle), (middle, high)])

    def merge(self, scope, stream, index):
        """Joins the segments at `index` and `index + 1`."""
        first, second = self.segments(scope, stream)[index : index + 2]
        self.scale(scope, stream, [first[2], second[2]], [(first[0], second[1])])
