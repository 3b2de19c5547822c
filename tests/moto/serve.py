"""Serves S3 with moto, prints where its bucket is, and ends when its input does."""

import sys
import urllib.request

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host, port = server.get_host_and_port()
bucket = f"http://{host}:{port}/bucket"
urllib.request.urlopen(urllib.request.Request(bucket, method="PUT")).close()
print(bucket, flush=True)
sys.stdin.read()
server.stop()
