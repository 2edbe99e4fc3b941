"""Creates topics of one partition.

usage: topics.py BOOTSTRAP TOPIC[:NAME=VALUE[,NAME=VALUE...]]...
"""

import sys

from confluent_kafka.admin import AdminClient, NewTopic

from common import settings


def main():
    topics = []
    for word in sys.argv[2:]:
        name, _, config = word.partition(":")
        pairs = [pair.split("=", 1) for pair in config.split(",") if pair]
        topics.append(NewTopic(name, num_partitions=1, replication_factor=1, config=dict(pairs)))
    admin = AdminClient(settings(sys.argv[1]))
    for future in admin.create_topics(topics).values():
        future.result()


main()
