"""Verdicts over blocks: a block's log ratio is one number, and the interval is what a sign-flip test does not reject."""
import itertools
import math
import statistics


def sign_flip_p(values):
    """Two-sided: how often do random signs give a mean at least as far from zero as the one seen? Exact up to 14 blocks."""
    if len(values) > 14:
        values = values[-14:]
    seen = abs(sum(values))
    hits = total = 0
    for signs in itertools.product((1, -1), repeat=len(values)):
        total += 1
        hits += abs(sum(s * v for s, v in zip(signs, values))) >= seen - 1e-12
    return hits / total


def interval(values, level=0.05):
    """The 95 % interval of the mean by inverting the test; None where so few blocks can never reject."""
    if not values or 2 / 2 ** len(values) > level:
        return None
    middle = statistics.fmean(values)
    reach = max(abs(v - middle) for v in values) * 2 + 1e-9

    def edge(direction):
        inside, outside = 0.0, reach
        for _ in range(30):
            half = (inside + outside) / 2
            if sign_flip_p([v - (middle + direction * half) for v in values]) > level:
                inside = half
            else:
                outside = half
        return middle + direction * inside
    return edge(-1), edge(1)


def compare(ours, theirs):
    """Paired by block: the ratio of means in logs, its interval, and half its width as a fraction."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs)]
    bounds = interval(logs)
    middle = statistics.fmean(logs)
    return {
        "ratio": math.exp(middle),
        "low": math.exp(bounds[0]) if bounds else None,
        "high": math.exp(bounds[1]) if bounds else None,
        "half_width": (math.exp((bounds[1] - bounds[0]) / 2) - 1) if bounds else None,
    }
