#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the *.jsonl beside it: histories with the answers of reference.py. The same input gives the same bytes.

Random histories go by the instants at which something changes (and the one before). Told ones (told.jsonl) are
situations whose decisive answers are written down here too, and must be what the reference says.
"""
import json
import pathlib
import random
import sys

from check import answer, matches
from reference import Reference

HERE = pathlib.Path(__file__).parent
MODES = ("automatic", "forced-open", "forced-closed", "disabled", "observe")
STATES = ("closed", "open", "half-open")


class Story:
    """A trace that is being told: every step is answered by the reference as it is added."""

    def __init__(self, name, config):
        self.name, self.config = name, config
        self.breaker = Reference(config)
        self.attempts = {}
        self.steps = []

    def step(self, at, op, keep=lambda key: True, must=None, **fields):
        step = {"at_ms": at, "op": op, **{key: value for key, value in fields.items() if value is not None}}
        got = answer(self.breaker, step, self.attempts)
        if must is not None and not matches(must, got):
            sys.exit(f"{self.name}, step {len(self.steps) + 1}: must be {must}, the reference says {got}")
        optional = ("retry_after_ms", "state", "status", "slow", "mode", "ramping")
        if op == "snapshot":
            optional = ()
        if op in ("record", "abandon"):
            optional = ("status", "slow", "mode", "ramping")
        step["expect"] = {key: value for key, value in got.items() if key not in optional or keep(key)}
        if op == "counters":
            step["expect"]["transitions"] = {key: n for key, n in got["transitions"].items() if n}
        if op == "admit" and got["admission"] != "rejected":
            step["expect"].pop("retry_after_ms", None)
        self.steps.append(step)
        return got

    def admit(self, at, must=None, draw=None):
        name = f"a{len(self.attempts) + 1}"
        self.step(at, "admit", must=must, attempt=name, draw=draw)
        return name

    def record(self, at, attempt, outcome, must=None, draw=None):
        self.step(at, "record", must=must, attempt=attempt, outcome=outcome, draw=draw)

    def call(self, at, outcome, must=None, draw=None, took=0):
        self.record(at + took, self.admit(at, draw=draw), outcome, must, draw)

    def shows(self, at, **must):
        self.step(at, "snapshot", must=must)

    def counts(self, at, **must):
        self.step(at, "counters", must=must)

    def mode(self, at, to, expires=None, previous=None):
        self.step(at, "mode", must=previous and {"previous": previous}, to=to, expires_after_ms=expires)

    def line(self):
        trace = {"id": self.name, "config": self.config, "steps": self.steps}
        return json.dumps(trace, separators=(",", ":")) + "\n"


def base(**more):
    return {"failures": 0, "window": 10, "within_ms": 1000, "cooldown_ms": 50, "success_threshold": 1, "probe_limit": 2,
            "probe_timeout_ms": 30, **more}


def opened(reason, at):
    return {"transition": {"to": "open", "reason": reason, "at_ms": at}}


def turned_away(wait):
    return {"admission": "rejected", "retry_after_ms": wait}


ALLOWED, PROBE, NOTHING = {"admission": "allowed"}, {"admission": "probe"}, {"transition": None}


# ---- told situations


def rate():
    config = base(failure_rate={"percent": 50, "minimum_calls": 4})
    s = Story("rate-success-completes-the-minimum", config)
    s.call(0, "failure", NOTHING)
    s.call(1, "failure", NOTHING)
    s.call(2, "ignored", NOTHING)
    s.call(3, "success", NOTHING)
    s.call(4, "success", opened("failure-rate-reached", 4))
    yield s
    s = Story("rate-just-below", base(failure_rate={"percent": 34, "minimum_calls": 3}))
    s.call(0, "success")
    s.call(0, "success")
    s.call(0, "failure", NOTHING)  # 33.3 %
    s.call(1, "failure", opened("failure-rate-reached", 1))
    yield s
    s = Story("rate-of-all", base(failure_rate={"percent": 100, "minimum_calls": 2}))
    for outcome in ("failure", "success", "failure", "failure"):
        s.call(0, outcome, NOTHING)
    yield s
    s = Story("rate-rises-as-successes-grow-old", base(within_ms=100, failure_rate={"percent": 50, "minimum_calls": 2}))
    for at, outcome in ((0, "success"), (0, "success"), (0, "success"), (90, "failure")):
        s.call(at, outcome, NOTHING)
    s.call(100, "success", NOTHING)  # 1 of 5
    s.call(101, "ignored", NOTHING)  # enters nothing and so decides nothing
    s.step(101, "snapshot", must={"successes": 4, "failures": 1})
    yield s
    s = Story("rate-reached-by-a-success-as-others-grow-old",
              base(within_ms=100, failure_rate={"percent": 50, "minimum_calls": 2}))
    for at, outcome in ((0, "success"), (0, "success"), (90, "failure")):
        s.call(at, outcome, NOTHING)
    s.call(101, "success", opened("failure-rate-reached", 101))
    yield s
    s = Story("rate-of-the-newest", base(window=4, failure_rate={"percent": 75, "minimum_calls": 4}))
    for outcome in ("success", "success", "failure", "failure", "success"):
        s.call(0, outcome, NOTHING)
    s.call(1, "failure", opened("failure-rate-reached", 1))
    yield s


def consecutive():
    config = base(window=4, consecutive_failures={"failures": 3})
    s = Story("run-ended-by-a-success", config)
    for outcome in ("failure", "failure", "success", "failure", "failure"):
        s.call(0, outcome, NOTHING)
    s.call(0, "failure", opened("consecutive-failures-reached", 0))
    yield s
    s = Story("run-not-ended-by-ignored", config)
    for outcome in ("failure", "ignored", "failure", "ignored"):
        s.call(0, outcome, NOTHING)
    s.call(9, "failure", opened("consecutive-failures-reached", 9))
    yield s
    s = Story("run-grows-old", base(within_ms=10, consecutive_failures={"failures": 2}))
    s.call(0, "failure", NOTHING)
    s.call(11, "failure", NOTHING)
    s.call(21, "failure", opened("consecutive-failures-reached", 21))
    yield s
    s = Story("run-of-all-the-window", base(window=3, consecutive_failures={"failures": 3}))
    for outcome in ("success", "failure", "failure"):
        s.call(0, outcome, NOTHING)
    s.call(0, "failure", opened("consecutive-failures-reached", 0))
    yield s


def order_of_reasons():
    rules = {"failure_rate": {"percent": 50, "minimum_calls": 2}, "consecutive_failures": {"failures": 2},
             "slow_calls": {"slower_than_ms": 5, "percent": 50, "minimum_calls": 2}}
    names = ("failure-threshold-reached", "failure-rate-reached", "consecutive-failures-reached", "slow-rate-reached")
    for first, reason in enumerate(names):
        kept = dict(list(rules.items())[max(0, first - 1):])
        config = base(**{"failures": 2 if first == 0 else 0, **kept})
        s = Story(f"reason-{first + 1}-of-those-that-hold", config)
        s.call(0, "failure", took=6)
        s.call(10, "failure", opened(reason, 16), took=6)
        yield s


def slow():
    config = base(slow_calls={"slower_than_ms": 20, "percent": 50, "minimum_calls": 2})
    s = Story("slow-exactly-the-threshold-is-not", config)
    s.call(0, "success", {"slow": 0}, took=20)
    s.call(0, "success", {"slow": 0}, took=20)
    yield s
    s = Story("slow-success-is-slow-and-not-failed", config)
    s.call(0, "success", {"slow": 1, "failures": 0, "successes": 1}, took=21)
    s.call(30, "success", opened("slow-rate-reached", 30))
    yield s
    s = Story("slow-failure-is-both", config)
    s.call(0, "failure", {"slow": 1, "failures": 1, "successes": 0}, took=21)
    s.call(30, "ignored", NOTHING, took=50)
    s.call(30, "success", opened("slow-rate-reached", 100), took=70)
    yield s
    for told in (False, True):
        config = base(slow_calls={"slower_than_ms": 5, "percent": 100, "minimum_calls": 9,
                                  "reopen_on_slow_probe": told})
        s = Story("slow-probe-reopens" if told else "slow-probe-closes", config)
        s.step(0, "force", to="open")
        s.call(50, "success", {"transition": {"to": "open" if told else "closed",
                                              "reason": "probe-slow" if told else "probe-succeeded"}}, took=6)
        yield s
        s = Story("slow-probe-that-fails-has-failed-" + ("told" if told else "untold"), config)
        s.step(0, "force", to="half-open")
        s.call(50, "failure", opened("probe-failed", 56), took=6)
        yield s
        s = Story("slow-sibling-after-closing-" + ("told" if told else "untold"), config)
        s.step(0, "force", to="half-open")
        first, second = s.admit(0, PROBE), s.admit(0, PROBE)
        s.record(5, first, "success", {"state": "closed"})
        s.record(6, second, "success", opened("probe-slow", 6) if told else {"status": "ignored", **NOTHING})
        yield s
    s = Story("slow-clock-that-goes-back", base(slow_calls={"slower_than_ms": 5, "percent": 1, "minimum_calls": 1}))
    s.record(10, s.admit(100), "success", {"slow": 0, **NOTHING})
    s.record(16, s.admit(10), "success", opened("slow-rate-reached", 16))
    yield s


def cooldown():
    grows = base(failures=1, window=1, cooldown=None)
    del grows["cooldown_ms"]
    grows["cooldown"] = {"base_ms": 100, "multiplier": 3, "maximum_ms": 500, "forget_after_ms": 1000}
    s = Story("cooldown-grows-by-failed-probes-to-the-maximum", grows)
    s.call(0, "failure")
    at = 0
    for length in (100, 300, 500, 500):
        s.admit(at + length - 1, turned_away(1))
        at += length
        s.call(at, "failure", opened("probe-failed", at))
    yield s
    s = Story("cooldown-grows-by-a-relapse-and-shrinks-after-health", grows)
    s.call(0, "failure")
    s.call(100, "success")
    s.call(1099, "failure", opened("failure-threshold-reached", 1099))  # 999 ms: a relapse
    s.admit(1099, turned_away(300))
    s.call(1399, "success")
    s.call(2398, "failure")
    s.admit(2398, turned_away(500))
    s.call(2898, "success")
    s.call(3898, "failure")  # a whole forget_after: one step back, and itself none
    s.admit(3898, turned_away(300))
    s.call(4198, "success")
    s.call(9198, "failure")
    s.admit(9198, turned_away(100))
    yield s
    s = Story("cooldown-of-a-first-trip-does-not-grow", grows)
    s.step(0, "force", to="closed")
    s.call(1, "failure")
    s.admit(1, turned_away(100))
    yield s
    s = Story("cooldown-growth-reset-by-force", grows)
    s.call(0, "failure")
    s.call(100, "failure")
    s.admit(100, turned_away(300))
    s.step(110, "force", to="open")
    s.admit(110, turned_away(100))
    s.call(210, "failure")
    s.admit(210, turned_away(300))
    yield s
    s = Story("cooldown-siblings-that-fail-together-are-one-step", {**grows, "probe_limit": 32})
    s.call(0, "failure")
    probes = [s.admit(100, PROBE) for _ in range(32)]
    for number, probe in enumerate(probes):
        s.record(101, probe, "failure", {"status": "counted" if number == 0 else "stale"})
    s.admit(101, turned_away(300))
    yield s
    s = Story("cooldown-default-maximum-is-ten-times-the-base",
              {**grows, "cooldown": {"base_ms": 10, "multiplier": 1000}})
    s.call(0, "failure")
    s.call(10, "failure")
    s.admit(10, turned_away(100))
    s.call(110, "success")
    s.call(209, "failure")  # forget_after is the maximum
    s.admit(209, turned_away(100))
    s.call(309, "success")
    s.call(409, "failure")
    s.admit(409, turned_away(10))
    yield s
    for jitter, draw, length in ((0, 999, 1000), (50, 0, 1000), (50, 500, 750), (50, 999, 501), (100, 0, 1000),
                                 (100, 999, 1), (100, 500, 500), (33, 777, 744)):
        s = Story(f"cooldown-jitter-{jitter}-draw-{draw}",
                  {**grows, "cooldown": {"base_ms": 1000, "jitter": jitter}})
        s.call(0, "failure", draw=draw)
        s.admit(0, turned_away(length), draw=0)  # drawn once
        s.admit(length - 1, turned_away(1), draw=400)
        s.admit(length, PROBE)
        yield s
    s = Story("cooldown-jitter-never-below-one", {**grows, "cooldown": {"base_ms": 1, "jitter": 100}})
    s.call(0, "failure", draw=999)
    s.admit(0, turned_away(1))
    s.admit(1, PROBE)
    yield s
    s = Story("cooldown-longest", {**grows, "cooldown": {"base_ms": 1 << 40, "multiplier": 1000, "jitter": 100,
                                                         "maximum_ms": 1 << 40}})
    s.call(0, "failure", draw=1)
    s.admit(0, turned_away((1 << 40) - ((1 << 40) // 1000)))
    yield s


def modes():
    two = base(failures=2)
    s = Story("forced-open-rejects-whatever-the-state", two)
    before = s.admit(0)
    s.mode(0, "forced-open", previous="automatic")
    s.admit(1, {**turned_away(1 << 40), "state": "closed"})
    s.record(1, before, "failure", {"status": "counted", "rejected": 1, "mode": "forced-open"})
    s.step(2, "force", to="half-open", must={"transition": {"reason": "forced-half-open"}})
    s.admit(100, {**turned_away(1 << 40), "state": "half-open"})
    s.mode(101, "automatic", previous="forced-open")
    s.admit(101, PROBE)
    yield s
    s = Story("forced-open-until-its-end", two)
    s.mode(10, "forced-open", 100)
    s.admit(10, turned_away(100))
    s.admit(109, turned_away(1))
    s.shows(110, mode="forced-open")  # written down by the next admit
    s.mode(110, "automatic", previous="automatic")
    s.mode(120, "forced-open", 5)
    s.admit(125, ALLOWED)
    s.shows(125, mode="automatic", rejected=2)
    yield s
    s = Story("forced-open-end-counts-from-what-was-seen", two)
    s.call(100, "failure")
    s.call(100, "failure")
    s.mode(20, "forced-open", 10)
    s.admit(25, turned_away(10))
    s.admit(109, turned_away(1))
    yield s
    s = Story("forced-closed-counts-and-does-not-move", two)
    s.mode(0, "forced-closed")
    for failures in (1, 2, 3):
        s.call(0, "failure", {"status": "counted", "failures": failures, **NOTHING})
    s.mode(1, "automatic", previous="forced-closed")
    s.call(1, "success", NOTHING)
    s.call(1, "failure", opened("failure-threshold-reached", 1))
    yield s
    s = Story("forced-closed-over-open", two)
    s.step(0, "force", to="open")
    s.mode(0, "forced-closed")
    first = s.admit(1, {"admission": "allowed", "state": "open"})
    s.admit(60, {"admission": "allowed", "state": "open", "transition": None})
    s.record(60, first, "failure", {"status": "stale", "state": "open"})
    s.mode(61, "automatic")
    s.admit(61, PROBE)
    yield s
    s = Story("forced-closed-verdicts-free-their-slots", base(failures=2, probe_limit=1, probe_timeout_ms=1000))
    s.step(0, "force", to="half-open")
    for outcome in ("success", "failure"):
        probe = s.admit(1, PROBE)
        s.mode(1, "forced-closed")
        s.record(2, probe, outcome, {"status": "ignored", "state": "half-open", "successes": 0})
        s.mode(3, "automatic")
    s.admit(4, PROBE)
    s.counts(4, probes=3, probe_verdicts=0, ignored=2)
    yield s
    s = Story("disabled-counts-nothing", two)
    before = s.admit(0)
    s.mode(0, "disabled")
    for outcome in ("failure", "success", "ignored"):
        s.call(1, outcome, {"status": "ignored", "failures": 0, "successes": 0})
    s.record(1, before, "failure", {"status": "ignored", "failures": 0})
    s.step(1, "abandon", attempt=before, must={"status": "ignored"})
    s.counts(2, completed=0, ignored=0, abandoned=0, failures=0)
    s.mode(3, "automatic", previous="disabled")
    s.record(4, before, "failure", {"status": "counted", "failures": 1})
    yield s
    s = Story("disabled-lets-through-in-open", two)
    s.step(0, "force", to="open")
    s.mode(0, "disabled")
    s.admit(1, {"admission": "allowed", "state": "open", "transition": None})
    s.admit(500, {"admission": "allowed", "state": "open", "transition": None})
    s.shows(500, rejected=0)
    yield s
    s = Story("disabled-keeps-the-probe-out", base(failures=2, probe_limit=1))
    s.step(0, "force", to="half-open")
    probe = s.admit(0, PROBE)
    s.mode(0, "disabled", 10)
    s.record(5, probe, "failure", {"status": "ignored", "state": "half-open"})
    s.record(10, probe, "failure", opened("probe-failed", 10))  # the end takes effect by itself
    s.shows(10, mode="disabled")
    yield s
    s = Story("mode-end-takes-effect-for-records-by-itself", two)
    s.mode(0, "forced-closed", 50)
    s.call(49, "failure")
    s.record(49, s.admit(49), "failure", NOTHING)
    last = s.admit(49)
    s.record(50, last, "failure", opened("failure-threshold-reached", 50))
    s.shows(50, mode="forced-closed")
    s.admit(51, {**turned_away(49)})
    s.shows(51, mode="automatic")
    yield s
    s = Story("observe-is-a-dry-run", base(failures=2, probe_limit=1))
    s.mode(0, "observe")
    s.call(0, "failure")
    s.call(0, "failure", opened("failure-threshold-reached", 0))
    void = s.admit(1, {"admission": "allowed", "state": "open"})
    s.record(2, void, "failure", {"status": "ignored", "state": "open", "rejected": 1})
    probe = s.admit(50, PROBE)
    s.admit(51, {"admission": "allowed", "state": "half-open"})
    s.record(52, probe, "success", {"state": "closed", "transition": {"reason": "probe-succeeded"}})
    s.record(53, void, "failure", {"status": "ignored", "failures": 0})
    s.counts(60, rejected=2, ramp_rejected=0, ignored=0, completed=3, in_closed_ms=8, in_open_ms=50, in_half_open_ms=2)
    yield s
    s = Story("force-keeps-the-mode", two)
    s.mode(0, "observe")
    s.step(1, "force", to="open")
    s.shows(1, mode="observe", state="open")
    s.admit(2, ALLOWED)
    yield s


def ramp():
    config = base(failures=2, ramp_up={"duration_ms": 1000, "start_percent": 10})
    s = Story("ramp-share-and-waits", config)
    s.step(0, "force", to="half-open")
    s.call(0, "success")
    s.shows(0, state="closed", ramping=True)
    s.admit(0, ALLOWED, draw=99)
    s.admit(0, {**turned_away(112), "state": "closed"}, draw=100)  # 100 + 900 * 112 / 1000 = 200.8
    s.admit(111, turned_away(1), draw=199)
    s.admit(112, ALLOWED, draw=199)
    s.admit(500, ALLOWED, draw=549)
    s.admit(500, turned_away(56), draw=550)
    s.admit(999, ALLOWED, draw=998)
    s.admit(999, turned_away(1), draw=999)
    s.shows(1000, ramping=True, rejected=0)
    s.counts(1000, rejected=0, ramp_rejected=4)
    s.admit(1000, ALLOWED, draw=999)
    s.shows(1000, ramping=False)
    yield s
    s = Story("ramp-from-nothing", base(failures=2, ramp_up={"duration_ms": 10, "start_percent": 0}))
    s.step(0, "force", to="half-open")
    s.call(5, "success")
    s.admit(5, turned_away(1), draw=0)
    s.admit(6, ALLOWED, draw=99)
    s.admit(6, turned_away(1), draw=100)
    yield s
    s = Story("ramp-that-starts-full", base(failures=2, ramp_up={"duration_ms": 10, "start_percent": 100}))
    s.step(0, "force", to="half-open")
    s.call(5, "success")
    s.admit(5, ALLOWED, draw=999)
    yield s
    s = Story("ramp-failures-are-judged", config)
    s.step(0, "force", to="half-open")
    s.call(0, "success")
    s.call(10, "failure", NOTHING)
    s.call(20, "failure", opened("failure-threshold-reached", 20))
    s.shows(20, ramping=False)
    yield s
    s = Story("ramp-not-after-a-forced-closing", config)
    s.step(0, "force", to="open")
    s.step(10, "force", to="closed")
    s.shows(10, ramping=False)
    s.admit(10, ALLOWED, draw=999)
    yield s
    s = Story("ramp-ended-by-force", config)
    s.step(0, "force", to="half-open")
    s.call(0, "success")
    s.step(10, "force", to="closed", must=NOTHING)
    s.shows(10, ramping=False)
    yield s
    s = Story("ramp-observed", config)
    s.mode(0, "observe")
    s.step(0, "force", to="half-open")
    s.call(0, "success")
    void = s.admit(0, ALLOWED, draw=100)
    s.record(1, void, "failure", {"status": "ignored", "failures": 0})
    s.counts(1, ramp_rejected=1, rejected=0)
    yield s
    s = Story("ramp-under-forced-closed-admits-all", config)
    s.step(0, "force", to="half-open")
    s.call(0, "success")
    s.mode(0, "forced-closed")
    s.admit(0, ALLOWED, draw=999)
    s.mode(1, "automatic")
    s.admit(1, {"admission": "rejected"}, draw=999)
    yield s
    s = Story("ramp-sibling-reopens", config)
    s.step(0, "force", to="half-open")
    first, second = s.admit(0), s.admit(0)
    s.record(1, first, "success", {"ramping": True})
    s.record(2, second, "failure", opened("probe-failed", 2))
    yield s


def counting():
    s = Story("counters-of-a-life", base(failures=2, probe_limit=1))
    s.counts(7, completed=0, in_closed_ms=7, in_open_ms=0, in_half_open_ms=0)
    s.call(10, "success")
    s.call(10, "ignored")
    late = s.admit(10)
    s.step(11, "abandon", attempt=s.admit(11), must={"status": "ignored"})
    s.call(20, "failure")
    s.call(20, "failure", opened("failure-threshold-reached", 20))
    s.record(21, late, "success", {"status": "stale"})
    turned = s.admit(22, turned_away(48))
    s.record(22, turned, "failure", {"status": "rejected"})
    probe = s.admit(70, PROBE)
    s.admit(71, turned_away(30))
    s.record(75, probe, "failure", opened("probe-failed", 75))
    s.record(76, probe, "success", {"status": "stale"})
    s.step(130, "abandon", attempt=s.admit(130, PROBE), must={"status": "ignored"})
    s.call(131, "success", {"state": "closed"})
    s.counts(141, completed=10, successes=1, failures=2, ignored=3, stale=2, rejected=2, ramp_rejected=0, abandoned=2,
             probes=3, probe_verdicts=2, in_closed_ms=30, in_open_ms=50 + 55, in_half_open_ms=6,
             transitions={"failure-threshold-reached": 1, "cooldown-elapsed": 2, "probe-failed": 1,
                          "probe-succeeded": 1})
    yield s


# ---- random histories


def random_config(r, theme):
    window = r.choice((1, 2, 3, 4, 6, 9))
    config = {"failures": r.randint(1, window), "window": window, "within_ms": r.choice((1, 10, 100, 1000)),
              "cooldown_ms": r.choice((1, 10, 50, 100)), "success_threshold": r.choice((1, 1, 2)),
              "probe_limit": r.choice((1, 1, 2, 3)), "probe_timeout_ms": r.choice((1, 10, 30, 100))}

    def some(*themes):
        return theme in themes or (theme in ("mixed", "clock") and r.random() < 0.5)

    if some("opening"):
        others = r.sample(("failure_rate", "consecutive_failures", "slow_calls"), r.randint(1, 3))
        if "failure_rate" in others:
            config["failure_rate"] = {"percent": r.choice((1, 25, 33, 50, 67, 100)),
                                      "minimum_calls": r.randint(1, window)}
        if "consecutive_failures" in others:
            config["consecutive_failures"] = {"failures": r.randint(1, window)}
        if "slow_calls" in others:
            config["slow_calls"] = {"slower_than_ms": r.choice((1, 5, 20)), "percent": r.choice((25, 50, 100)),
                                    "minimum_calls": r.randint(1, window)}
            if r.random() < 0.5:
                config["slow_calls"]["reopen_on_slow_probe"] = r.random() < 0.8
        if r.random() < 0.7:
            config["failures"] = 0
    if some("cooldown"):
        start = config.pop("cooldown_ms")
        config["cooldown"] = {"base_ms": start}
        if r.random() < 0.8:
            config["cooldown"]["multiplier"] = r.choice((2, 2, 3, 10, 1000))
        if r.random() < 0.6:
            config["cooldown"]["maximum_ms"] = start * r.choice((1, 4, 5, 100))
        if r.random() < 0.6:
            config["cooldown"]["jitter"] = r.choice((1, 10, 50, 100))
        if r.random() < 0.6:
            config["cooldown"]["forget_after_ms"] = r.choice((1, 20, 100))
    if some("ramp"):
        config["ramp_up"] = {"duration_ms": r.choice((1, 7, 100, 100, 1000, 1000)),
                             "start_percent": r.choice((0, 1, 10, 55, 100))}
    return config


def next_instant(r, breaker, now, theme):
    """Now, soon, or when something changes, or the instant before."""
    roll = r.random()
    if theme == "clock" and roll < 0.2:
        return max(0, now - r.choice((1, 1, 5, 40, 200)))
    if roll < 0.35:
        return now
    if roll < 0.6:
        return now + r.choice((1, 1, 2, 5, 21))
    edges = []
    if breaker.state == "open":
        edges += [breaker.open_until] * 3
    if breaker.state == "half-open":
        edges.append(breaker.lease + breaker.probe_timeout)
    if breaker.mode_until is not None:
        edges.append(breaker.mode_until)
    if breaker.ramping:
        edges.append(breaker.since + breaker.ramp_up["duration_ms"])
        edges += [now + breaker.until_next_tenth(now - breaker.since)] * 2
    if breaker.state == "closed" and breaker.closed_by_probes:
        edges.append(breaker.since + breaker.forget_after * r.randint(1, 3))
    if breaker.window:
        edges.append(breaker.window[0][0] + breaker.ratio[2] + 1)
    edges = [edge - r.choice((0, 0, 1)) for edge in edges]
    edges = [edge for edge in edges if now <= edge < 1 << 40]
    return r.choice(edges) if edges else now + 1


def random_story(r, name, theme, length):
    s = Story(name, random_config(r, theme))
    now, waiting = 0, []
    failing = r.choice((0.1, 0.3, 0.5, 0.8))
    if theme == "ramp" or (theme in ("mixed", "clock") and s.breaker.ramp_up and r.random() < 0.5):
        s.step(0, "force", to="half-open")
        for _ in range(s.breaker.success_threshold):
            s.call(0, "success")

    def keep(_key):
        return r.random() < 0.3

    weights = {"admit": 10, "record": 9, "abandon": 0.3, "snapshot": 0.5, "force": 0.3, "mode": 0.1, "counters": 0.3}
    if theme in ("modes", "mixed", "clock"):
        weights["mode"] = 1.5
    if theme == "ramp":
        weights.update(admit=12, record=6)
    if theme == "counters":
        weights.update(abandon=2, counters=2, mode=0.6, force=0.6)
    for _ in range(length):
        now = next_instant(r, s.breaker, now, theme)
        op = r.choices(list(weights), list(weights.values()))[0]
        draw = r.choice((None, None, 0, 1, 500, 999, r.randrange(1000)))
        if s.breaker.ramping and op == "admit":  # about the share
            draw = min(999, max(0, s.breaker.share(now - s.breaker.since) + r.choice((-1, 0, 0, 1, -300, 300))))
        if op in ("record", "abandon") and not s.attempts:
            op = "admit"
        if op == "admit":
            attempt = f"a{len(s.attempts) + 1}"
            s.step(now, "admit", lambda key: key == "retry_after_ms" or keep(key), attempt=attempt, draw=draw)
            waiting.append(attempt)
        elif op in ("record", "abandon"):
            if waiting and r.random() < 0.93:
                attempt = waiting.pop(r.choice((0, -1, r.randrange(len(waiting)))))
            else:
                attempt = r.choice(list(s.attempts))
            probe = s.attempts[attempt].kind == "probe"
            fails = r.random() < (0.25 if probe and theme != "clock" else failing)  # it has to close to go on
            outcome = "failure" if fails else r.choice(("success", "success", "success", "success", "ignored"))
            s.step(now, op, keep, attempt=attempt, outcome=None if op == "abandon" else outcome, draw=draw)
        elif op == "force":
            s.step(now, "force", to=r.choice(STATES), draw=draw)
        elif op == "mode":
            to = r.choice(MODES)
            expires = None if to == "automatic" or r.random() < 0.4 else r.choice((1, 5, 20, 100))
            s.step(now, "mode", to=to, expires_after_ms=expires)
        else:
            s.step(now, op)
    s.step(now, "counters")
    return s


def main():
    told = [s for tell in (rate, consecutive, order_of_reasons, slow, cooldown, modes, ramp, counting) for s in tell()]
    files = {"told": told}
    for number, theme in enumerate(("opening", "cooldown", "modes", "ramp", "counters", "mixed", "clock")):
        r = random.Random(20261130 + number)  # arbitrary; the same every time
        files[theme] = [random_story(r, f"{theme}-{i}", theme, 24) for i in range(40)]
    for name, stories in files.items():
        (HERE / f"{name}.jsonl").write_text("".join(s.line() for s in stories), encoding="utf-8")
        print(f"{name}.jsonl: {len(stories)} traces, {sum(len(s.steps) for s in stories)} steps")


if __name__ == "__main__":
    main()
