#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py FILE...: runs traces on the reference and prints every answer that deviates. Exit code 1 if one does."""
import json
import sys

from reference import Reference


def answer(breaker, step, attempts):
    """All that the reference says about a step, by the names of the trace format."""
    at, draw = step["at_ms"], step.get("draw", 0)
    if step["op"] == "admit":
        attempt, admission, wait, transition = breaker.admit(at, draw)
        attempts[step["attempt"]] = attempt
        return {"admission": admission, "retry_after_ms": wait, "state": breaker.state, "transition": transition}
    if step["op"] in ("record", "abandon"):
        attempt = attempts[step["attempt"]]
        if step["op"] == "abandon":
            status, transition = breaker.abandon(at, attempt, draw)
        else:
            status, transition = breaker.record(at, attempt, step["outcome"], draw)
        return {**breaker.snapshot(), "status": status, "transition": transition}
    if step["op"] == "snapshot":
        return breaker.snapshot()
    if step["op"] == "force":
        return {"transition": breaker.force(at, step["to"], draw)}
    if step["op"] == "mode":
        return {"previous": breaker.set_mode(at, step["to"], step.get("expires_after_ms"))}
    return breaker.counters(at)


def matches(expected, got):
    if isinstance(expected, dict) and isinstance(got, dict):
        return all(key in got and matches(value, got[key]) for key, value in expected.items())
    return expected == got


def main(files):
    traces = steps = deviations = 0
    for file in files:
        for line in open(file, encoding="utf-8"):
            trace = json.loads(line)
            breaker, attempts = Reference(trace["config"]), {}
            traces += 1
            for number, step in enumerate(trace["steps"], 1):
                steps += 1
                got = answer(breaker, step, attempts)
                if not matches(step["expect"], got):
                    deviations += 1
                    print(f"trace {trace['id']}, step {number}: expected {step['expect']}, got {got}")
    print(f"{traces} traces, {steps} steps, {deviations} deviations")
    return 1 if deviations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
