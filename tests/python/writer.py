"""The writer as a process of its own: the readers of the wheel starve a writer that shares their process.

usage: writer.py URI SCOPE STREAM KEYS QUOTA PHASES

Writes events "key:number" in PHASES phases. A phase writes at least QUOTA events, reports "quota", and goes on one
event at a time until a line arrives on standard input. At the end it flushes and reports "done N", N events in all.
"""
import sys
import threading

import pravega_client


def main(uri, scope, stream, keys, quota, phases):
    manager = pravega_client.StreamManager(uri)  # the writer works only as long as its manager lives
    writer = manager.create_writer(scope, stream, 1000)
    released = threading.Semaphore(0)

    def listen():
        for _ in sys.stdin:
            released.release()

    threading.Thread(target=listen, daemon=True).start()
    written = 0
    for _ in range(phases):
        for _ in range(quota):
            written = write(writer, written, keys)
        writer.flush()
        print("quota", flush=True)
        while not released.acquire(timeout=0.001):
            written = write(writer, written, keys)
            writer.flush()
    writer.flush()
    print("done", written, flush=True)


def write(writer, written, keys):
    key = f"key-{written % keys}"
    writer.write_event(f"{key}:{written // keys}", key)
    return written + 1


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:7]))
