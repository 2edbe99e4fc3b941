"""What the librdkafka programs share."""

import sys

TOPIC_TIMEOUT_MS = 30000


def settings(bootstrap, **more):
    base = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10000}
    base.update(more)
    return base


def say(*words):
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()
