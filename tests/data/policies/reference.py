# SPDX-License-Identifier: BSD-3-Clause
"""The rules of a breaker, a second time: what they mean, without regard to speed or room.

Written from what the rules are to mean, not from the C++, so that a misunderstanding of either shows as a deviation.
The window is the list of all outcomes of the period, looked at anew each time; the counters are sums over a log.
Times are whole milliseconds. A configuration is that of a trace (docs/trace-format.md).
"""

NO_END = 1 << 40  # the wait of a rejection that ends only when somebody ends it
FORCED_REASONS = {"closed": "forced-closed", "open": "forced-open", "half-open": "forced-half-open"}


class Attempt:
    def __init__(self, kind, period=None, started=0):
        self.kind = kind  # allowed, probe, rejected, void
        self.period = period  # of an allowed one: the Closed period; a probe is told apart by being this object
        self.started = started


class Reference:
    def __init__(self, config, now=0):
        self.ratio = config["failures"], config["window"], config["within_ms"]
        self.rate = config.get("failure_rate")
        self.consecutive = config.get("consecutive_failures")
        self.slow_calls = config.get("slow_calls")
        self.ramp_up = config.get("ramp_up")
        self.success_threshold = config["success_threshold"]
        self.probe_limit = config["probe_limit"]
        self.probe_timeout = config["probe_timeout_ms"]
        cooldown = config.get("cooldown", {"base_ms": config.get("cooldown_ms")})
        self.base = cooldown["base_ms"]
        self.multiplier = cooldown.get("multiplier", 1)
        self.maximum = cooldown.get("maximum_ms", min(10 * self.base, NO_END))
        self.jitter = cooldown.get("jitter", 0)
        self.forget_after = cooldown.get("forget_after_ms", self.maximum)

        self.state, self.since = "closed", now
        self.opened_at = None
        self.open_until = None
        self.period = 0
        self.history = []  # (time, failed, slow) of this Closed period
        self.window = []  # what of it the newest outcome left in the window
        self.closed_by_probes = False
        self.steps = 0  # of back-off
        self.ramping = False
        self.probes = set()
        self.lease = 0
        self.probe_successes = 0
        self.outage_rejected = 0
        self.mode, self.mode_until = "automatic", None
        self.log = []  # (what, how often or how long)

    # ---- time and modes

    def counted(self, now):
        """An instant as this breaker counts it: none is earlier than what it has acted on."""
        seen = [now]
        if self.opened_at is not None:
            seen.append(self.opened_at)
        if self.state == "half-open":
            seen.append(self.lease)
        return max(seen)

    def mode_at(self, now):
        over = self.mode_until is not None and self.counted(now) >= self.mode_until
        return "automatic" if over else self.mode

    def set_mode(self, now, mode, expires_after=None):
        previous = self.mode_at(now)
        self.mode = mode
        self.mode_until = None if expires_after is None else self.counted(now) + expires_after
        return previous

    # ---- admit

    def admit(self, now, draw=0):
        """(attempt, admission, retry_after, transition)"""
        if self.mode == "disabled" and self.mode_until is None:
            return Attempt("void"), "allowed", 0, None
        raw, now = now, self.counted(now)
        if self.mode_at(now) != self.mode:
            self.mode, self.mode_until = "automatic", None
        if self.ramping and now - self.since >= self.ramp_up["duration_ms"]:
            self.ramping = False
        if self.mode == "disabled":
            return Attempt("void"), "allowed", 0, None
        if self.mode == "forced-closed":
            return Attempt("allowed", self.period, raw), "allowed", 0, None
        if self.mode == "forced-open":
            self.reject("rejected")
            return Attempt("rejected"), "rejected", NO_END if self.mode_until is None else self.mode_until - now, None
        kind, wait, transition, counter = self.decide(now, draw)
        if kind == "rejected":
            self.reject(counter)
            if self.mode == "observe":
                return Attempt("void"), "allowed", 0, None
            return Attempt("rejected"), "rejected", wait, None
        attempt = Attempt(kind, self.period, raw)
        if kind == "probe":
            self.probes.add(attempt)
            self.log.append(("probes", 1))
        return attempt, kind, 0, transition

    def reject(self, counter):
        self.log.append((counter, 1))
        if counter == "rejected":
            self.outage_rejected += 1

    def decide(self, now, draw):
        if self.state == "closed":
            if not self.ramping or draw < self.share(now - self.since):
                return "allowed", 0, None, None
            return "rejected", self.until_next_tenth(now - self.since), None, "ramp_rejected"
        transition = None
        if self.state == "open":
            if now < self.open_until:
                return "rejected", self.open_until - now, None, "rejected"
            self.probes = set()
            transition = self.move("half-open", "cooldown-elapsed", now)
            self.lease = now
        if self.probes and now >= self.lease + self.probe_timeout:
            self.probes = set()
        if not self.probes:
            self.lease = now
        if len(self.probes) >= self.probe_limit:
            return "rejected", self.probe_timeout, None, "rejected"
        return "probe", 0, transition, None

    def share(self, elapsed):
        """Of the calls that a ramp admits, in thousandths."""
        if elapsed >= self.ramp_up["duration_ms"]:
            return 1000
        start = self.ramp_up["start_percent"] * 10
        return start + (1000 - start) * max(0, elapsed) // self.ramp_up["duration_ms"]

    def until_next_tenth(self, elapsed):
        elapsed = max(0, elapsed)
        tenth = self.share(elapsed) // 100
        low, high = elapsed + 1, self.ramp_up["duration_ms"]  # by halving: the share never falls
        while low < high:
            middle = (low + high) // 2
            if self.share(middle) // 100 > tenth:
                high = middle
            else:
                low = middle + 1
        return low - elapsed

    # ---- outcomes

    def record(self, now, attempt, outcome, draw=0):
        """(status, transition)"""
        if attempt.kind == "rejected":
            return "rejected", None
        if attempt.kind == "void":
            return "ignored", None
        judge = self.record_probe if attempt.kind == "probe" else self.record_allowed
        status, transition = judge(now, attempt, outcome, draw)
        if self.mode != "disabled" and status in ("ignored", "stale"):  # which writes nothing until an admit ends it
            self.log.append((status, 1))
        return status, transition

    def abandon(self, now, attempt, draw=0):
        if attempt.kind in ("allowed", "probe") and self.mode != "disabled":
            self.log.append(("abandoned", 1))
        return self.record(now, attempt, "ignored", draw)

    def is_slow(self, attempt, now):
        return self.slow_calls is not None and now - attempt.started > self.slow_calls["slower_than_ms"]

    def record_allowed(self, now, attempt, outcome, draw):
        if outcome == "ignored":
            return "ignored", None
        if self.state != "closed" or attempt.period != self.period:
            return "stale", None
        mode = self.mode_at(now)
        if mode == "disabled":
            return "ignored", None
        at = self.counted(now)
        if self.history:
            at = max(at, self.history[-1][0])
        failed = outcome == "failure"
        self.history.append((at, failed, self.is_slow(attempt, now)))
        _, size, within = self.ratio
        self.window = [entry for entry in self.history if entry[0] >= at - within][-size:]
        self.log.append(("failures" if failed else "successes", 1))
        reason = None if mode == "forced-closed" else self.why_open(failed)
        return "counted", reason and self.open(reason, at, draw)

    def why_open(self, failed):
        calls = len(self.window)
        failures = sum(1 for entry in self.window if entry[1])
        slow = sum(1 for entry in self.window if entry[2])
        threshold = self.ratio[0]
        if threshold and failed and failures >= threshold:
            return "failure-threshold-reached"
        rate = self.rate
        if rate and calls >= rate["minimum_calls"] and failures * 100 >= rate["percent"] * calls:
            return "failure-rate-reached"
        if self.consecutive and failed:
            newest = self.window[-self.consecutive["failures"]:]
            if len(newest) == self.consecutive["failures"] and all(entry[1] for entry in newest):
                return "consecutive-failures-reached"
        rate = self.slow_calls
        if rate and calls >= rate["minimum_calls"] and slow * 100 >= rate["percent"] * calls:
            return "slow-rate-reached"
        return None

    def record_probe(self, now, attempt, outcome, draw):
        mode = self.mode_at(now)
        if mode == "disabled":
            return "ignored", None
        if self.state == "open" or attempt not in self.probes:
            return "stale", None
        at = self.counted(now)
        self.probes.remove(attempt)
        if outcome == "ignored" or mode == "forced-closed":
            return "ignored", None
        slow = self.slow_calls and self.slow_calls.get("reopen_on_slow_probe") and self.is_slow(attempt, now)
        if outcome == "failure" or slow:
            self.log.append(("probe_verdicts", 1))
            self.probes = set()
            return "counted", self.open("probe-failed" if outcome == "failure" else "probe-slow", at, draw)
        if self.state == "closed":
            return "ignored", None  # a sibling has closed it: only what speaks against it matters
        self.log.append(("probe_verdicts", 1))
        self.probe_successes += 1
        if self.probe_successes < self.success_threshold:
            return "counted", None
        transition = self.move("closed", "probe-succeeded", at)
        self.history, self.window, self.outage_rejected = [], [], 0
        self.closed_by_probes = True
        self.ramping = self.ramp_up is not None
        return "counted", transition

    # ---- transitions

    def length(self, steps):
        return min(self.base * self.multiplier**steps, self.maximum) if self.multiplier > 1 else self.base

    def drawn(self, draw):
        cooldown = self.length(self.steps)
        return max(1, cooldown - (cooldown * self.jitter // 100) * draw // 1000)

    def open(self, reason, at, draw):
        if self.multiplier > 1:
            healthy = max(0, at - self.since) if self.state == "closed" else 0
            by_probe = reason in ("probe-failed", "probe-slow")
            if by_probe or (self.closed_by_probes and healthy < self.forget_after):
                self.steps += 1 if self.length(self.steps) < self.maximum else 0
            else:
                self.steps = max(0, self.steps - healthy // self.forget_after)
        if self.state == "closed":
            self.outage_rejected = 0  # from HalfOpen it is the same outage
        transition = self.move("open", reason, at)
        self.closed_by_probes = False
        self.opened_at = at
        self.open_until = at + self.drawn(draw)
        return transition

    def force(self, now, to, draw=0):
        at = self.counted(now)
        reason = None if to == self.state else FORCED_REASONS[to]
        transition = self.move(to, reason, at)
        self.history, self.window, self.outage_rejected = [], [], 0
        self.probes = set()
        self.closed_by_probes = False
        self.steps = 0
        self.opened_at = self.lease = at
        self.open_until = at + self.drawn(draw)
        return transition if reason else None

    def move(self, to, reason, at):
        start = self.state
        self.log.append(("in " + start, max(0, at - self.since)))
        if reason:
            self.log.append((reason, 1))
        self.state, self.since = to, at
        self.period += 1
        self.probe_successes = 0
        self.ramping = False
        return {"from": start, "to": to, "reason": reason, "at_ms": at}

    # ---- what it shows

    def snapshot(self):
        half_open = self.state == "half-open"
        failures = 0 if half_open else sum(1 for entry in self.window if entry[1])
        return {
            "state": self.state,
            "opened_at_ms": self.opened_at,
            "successes": self.probe_successes if half_open else len(self.window) - failures,
            "failures": failures,
            "rejected": self.outage_rejected,
            "slow": 0 if half_open else sum(1 for entry in self.window if entry[2]),
            "mode": self.mode,
            "ramping": self.ramping,
        }

    def counters(self, now):
        def total(what):
            return sum(amount for name, amount in self.log if name == what)

        names = ("successes", "failures", "ignored", "stale", "rejected", "ramp_rejected", "abandoned", "probes",
                 "probe_verdicts")
        counters = {name: total(name) for name in names}
        counters["completed"] = sum(counters[n] for n in ("successes", "failures", "ignored", "stale",
                                                          "probe_verdicts"))
        for state in ("closed", "open", "half-open"):
            present = max(0, now - self.since) if state == self.state else 0
            counters["in_" + state.replace("-", "_") + "_ms"] = total("in " + state) + present
        counters["transitions"] = {reason: total(reason) for reason in REASONS}
        return counters


REASONS = ("failure-threshold-reached", "cooldown-elapsed", "probe-succeeded", "probe-failed", "forced-open",
           "forced-closed", "forced-half-open", "failure-rate-reached", "consecutive-failures-reached",
           "slow-rate-reached", "probe-slow")
