"""Keeps a JVM with a Spark context for drivers that come and go; ends when its input does."""

from __future__ import annotations

import json
import sys

from slicemill.runtime.spark_session import local_session

if __name__ == "__main__":
    spark = local_session(cores=2)
    gateway = spark.sparkContext._gateway.gateway_parameters
    print(json.dumps({"port": gateway.port, "secret": gateway.auth_token}), flush=True)
    sys.stdin.read()
    spark.stop()
