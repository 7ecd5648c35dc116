"""Limits, verdicts and the table of scripts/attacks."""

from attacklib.reader import JUDGED, OPERATIONS

RATIO = 3.0
SLACK_MS = 2.0
MEMORY_MIB = 256.0
COLUMNS = ("attack", "operation", "p99 quiet", "p99 attack", "ratio", "RSS MiB", "WAL MiB", "errors", "state",
           "verdict")


def judge(result):
    """Why a result misses the limits, each in a few words."""
    if result.get("failure"):
        return [result["failure"]]
    reasons = []
    for name in JUDGED:
        quiet, attack = (result[phase]["latencies"][name] for phase in ("quiet", "attack"))
        if attack["p99"] > max(RATIO * quiet["p99"], quiet["p99"] + SLACK_MS):
            reasons.append(f"latency of {name}")
        if not attack["count"] or not quiet["count"]:
            reasons.append(f"{name} was not measured")
    if result["peaks"]["VmRSS"] >= MEMORY_MIB:
        reasons.append("memory")
    if result["reader_errors"]:
        reasons.append("reader errors")
    return reasons


def milliseconds(value):
    return f"{value:.2f} ms"


def rows(result):
    """The lines of one attack: one for each operation, the first with all else."""
    if result.get("failure"):
        yield (result["attack_name"], "-", "-", "-", "-", "-", "-", "-", "-", "FAILED")
        return
    peaks = result["peaks"]
    rest = (f"{peaks['VmRSS']:.0f}", f"{peaks['wal']:.0f}", str(result["reader_errors"]), result["state"],
            "FAILED" if result["misses"] else "ok")
    for number, name in enumerate(OPERATIONS):
        quiet, attack = (result[phase]["latencies"][name]["p99"] for phase in ("quiet", "attack"))
        ratio = f"{attack / quiet:.1f}" if quiet else "-"
        label = name if name in JUDGED else f"({name})"
        yield (result["attack_name"] if number == 0 else "", label, milliseconds(quiet), milliseconds(attack), ratio,
               *(rest if number == 0 else [""] * len(rest)))


def table(results):
    lines = [COLUMNS, *(row for result in results for row in rows(result))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def details(result):
    """What happened, below the table."""
    lines = [f"{result['attack_name']}: " + ("; ".join(result["misses"]) or "within the limits")]
    if result.get("failure"):
        return lines[0]
    peaks, quiet = result["peaks"], result["quiet"]["peaks"]
    lines.append(f"  VmRSS quiet {quiet['VmRSS']:.0f}, peak {peaks['VmRSS']:.0f} MiB (RssAnon {peaks['RssAnon']:.0f}); "
                 f"descriptors {peaks['descriptors']:.0f}; processor: quiet {result['quiet']['cpu']:.0f} %, "
                 f"attack {result['attack']['cpu']:.0f} % of one core")
    lines += [f"  {name}: {value}" for name, value in sorted(result["counts"].items())]
    lines += [f"  BROKEN: {what}" for what in result["broken"]]
    lines += [f"  reader error: {what}" for what in result["shown"]]
    return "\n".join(lines)
