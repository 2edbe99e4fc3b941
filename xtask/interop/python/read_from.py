"""Reads one partition from many places, each to its end, through librdkafka.

usage: read_from.py BOOTSTRAP SECONDS < JOBS
Jobs and what is printed are as in ReadFrom.java; the position is where librdkafka says that the partition ends.
Several consumers share the jobs, since each waits more than it works.
"""

import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from confluent_kafka import Consumer, KafkaError, TopicPartition

from common import settings

WORKERS = 2


def bytes_said(data):
    if data is None:
        return "-"
    if len(data) == 0:
        return "="
    if len(data) <= 64:
        return data.hex()
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()}"


def consumer(bootstrap, topics, isolation, max_bytes):
    more = {
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "max.partition.fetch.bytes": max_bytes,
        "fetch.wait.max.ms": 2,
    }
    if max_bytes < 1000000:
        # The least that librdkafka takes: a response is never meant to be smaller than a message.
        more["message.max.bytes"] = max(max_bytes, 1000)
        more["fetch.max.bytes"] = max(max_bytes, 1000)
    one = Consumer(settings(bootstrap, **more))
    # A topic that it has not heard of takes it up to a second, whenever that is; several take no longer.
    one.assign([TopicPartition(topic, 0, 0) for topic in topics])
    return one


def read(one, job, seconds, out):
    name, topic, _, _, start, end = job
    deadline = time.monotonic() + seconds
    end = int(end)
    if start.startswith("@"):
        found = one.offsets_for_times([TopicPartition(topic, 0, int(start[1:]))], timeout=seconds)[0]
        if found.error is not None:
            raise RuntimeError(f"no offset for {start} of {topic}: {found.error}")
        # OFFSET_END, -1, says that nothing is so late.
        out.append(f"found {name} {found.offset}")
        if found.offset < 0:
            out.append(f"end {name} {end}")
            return True
        start = found.offset
    one.assign([TopicPartition(topic, 0, int(start))])
    position = int(start)
    while time.monotonic() < deadline:
        message = one.poll(0.2)
        if message is None:
            continue
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(f"{topic} was not read from {start}: {message.error()}")
            position = message.offset()
            break
        position = message.offset() + 1
        out.append(f"record {name} {message.offset()} {bytes_said(message.key())} {bytes_said(message.value())}")
    out.append(f"end {name} {position}")
    return position >= end


def main():
    bootstrap, seconds = sys.argv[1], int(sys.argv[2])
    jobs = [line.split() for line in sys.stdin]
    topics = sorted({job[1] for job in jobs})
    kinds = {(job[2], int(job[3])) for job in jobs}
    free = SimpleQueue()
    for _ in range(WORKERS):
        free.put({kind: consumer(bootstrap, topics, *kind) for kind in kinds})
    hung = []

    def work(job):
        if len(hung) >= 3:
            return ""
        consumers = free.get()
        out = []
        if not read(consumers[(job[2], int(job[3]))], job, seconds, out):
            hung.append(job)
        free.put(consumers)
        return "".join(line + "\n" for line in out)

    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        for text in pool.map(work, jobs):
            sys.stdout.write(text)
    sys.stdout.flush()
    # The consumers know no group, so that nobody waits for their farewell.
    os._exit(0)


main()
