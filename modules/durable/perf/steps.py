# SPDX-License-Identifier: Apache-2.0
"""What main.py measures of the scripts alone, without the library: where the
time of a life goes, and how much memory a task takes; main.py's top says what.
One connection of Python calls them, one after the other."""

import os

from alone import machine
from servers import Engine, Space

PAYLOAD = "." * 64
SIZES = (1, 16, 256)  # tasks in a script
TASKS = {1: 2000, 16: 16000, 256: 64000}
TICK = 1000  # ms: else all that a step takes long for is one more to look at
SHOWN = 5  # commands of a script
MEMORY_TASKS = 200000
MEMORY_BATCH = 500
QUEUES = 10000
AHEAD = 3600000  # ms until the first is due that waits
PRIME = 2654435761  # multiples spread evenly over a rotation of the wheel

# The commands of a life, and nothing else: no check, no clock, no state but the
# record's.
LEAST = """#!lua name=least
local function each(first, make)
    return function(keys, args)
        local words = {}
        for i, id in ipairs(args) do
            make(words, i, id)
        end
        return first(words, args)
    end
end
redis.register_function('nothing', function() return 0 end)
redis.register_function('add', each(function(words, args)
    redis.call('MSET', unpack(words))
    local members = {}
    for i, id in ipairs(args) do
        members[2 * i - 1], members[2 * i] = 0, id
    end
    redis.call('ZADD', '{l}:b', unpack(members))
end, function(words, i, id)
    words[2 * i - 1], words[2 * i] = '{l}:r:' .. id, string.rep('.', 126)
end))
redis.register_function('pump', function(keys, args)
    local ids = redis.call('ZRANGE', '{l}:b', 0, args[1] - 1)
    redis.call('ZREM', '{l}:b', unpack(ids))
    redis.call('RPUSH', '{l}:q', unpack(ids))
end)
redis.register_function('take', function(keys, args)
    local ids = redis.call('LPOP', '{l}:q', args[1])
    local names, leases = {}, {}
    for i, id in ipairs(ids) do
        names[i] = '{l}:r:' .. id
        leases[2 * i - 1], leases[2 * i] = 30000, id
    end
    local records = redis.call('MGET', unpack(names))
    for i = 1, #names do
        redis.call('SETRANGE', names[i], 0, string.rep('-', 56))
    end
    redis.call('ZADD', '{l}:fly', unpack(leases))
    return records
end)
redis.register_function('finish', each(function(words, args)
    redis.call('MGET', unpack(words))
    redis.call('ZREM', '{l}:fly', unpack(args))
    for i = 1, #words do
        redis.call('SET', words[i], string.rep('-', 62), 'PX', 600000)
    end
end, function(words, i, id)
    words[i] = '{l}:r:' .. id
end))
"""


class Counter:
    """What the engine's main thread has used, and of which commands."""

    def __init__(self, client):
        self.client = client

    def read(self):
        cpu = dict(line.split(":") for line in
                   self.client("INFO", "CPU").decode().split() if ":" in line)
        calls = {}
        for line in self.client("INFO", "commandstats").decode().split():
            if line.startswith("cmdstat_"):
                name, rest = line[len("cmdstat_"):].split(":", 1)
                found = dict(word.split("=") for word in rest.split(","))
                calls[name] = int(found["calls"]), int(found["usec"])
        return sum(float(cpu[f"used_cpu_{kind}_main_thread"])
                   for kind in ("user", "sys")) * 1e6, calls

    def of(self, work):
        """CPU in us; calls and us of each command while it works."""
        cpu, before = self.read()
        own, _ = self.read()  # what a reading costs
        work()
        end, after = self.read()
        calls = {}
        for name, (count, spent) in after.items():
            count_before, spent_before = before.get(name, (0, 0))
            if name != "info" and count > count_before:
                calls[name] = count - count_before, spent - spent_before
        return end - own - (own - cpu), calls


def numbered(first, count):
    return [f"task-{i:011d}" for i in range(first, first + count)]


class Life:
    """A life in so many scripts as it takes, in batches; each step is done with
    all tasks before the next."""

    def __init__(self, client, batch):
        self.client, self.batch = client, batch
        self.space = Space(client, "hwt", shards=1, tick=TICK)
        self.batches = [numbered(first, batch)
                        for first in range(0, TASKS[batch], batch)]
        self.token, self.attempts = 0, []

    def add(self):
        for ids in self.batches:
            done = self.space("add", 0, *sum((
                [name, "orders", "in", 0, 20, PAYLOAD, ""]
                for name in ids), []))
            assert done == [0] * self.batch

    def pump(self):
        left = TASKS[self.batch]
        while left > 0:
            moved = self.space("pump", 0, self.batch, "")[0]
            assert moved > 0
            left -= moved

    def take(self):
        for _ in self.batches:
            self.token += 1
            taken = self.space("take", 0, "orders", "w", self.token,
                               self.token - 1, self.batch, 30000)
            self.attempts.append([(t[0], t[6]) for t in taken[:self.batch]])
        assert sum(map(len, self.attempts)) == TASKS[self.batch]

    def finish(self):
        for attempts in self.attempts:
            done = self.space("finish", 0, *sum((
                [name, fence, "done", 0] for name, fence in attempts), []))
            assert done == [0] * len(attempts)

    def steps(self):
        return {step: getattr(self, step)
                for step in ("add", "pump", "take", "finish")}


class Least(Life):
    """The same with LEAST."""

    def call(self, name, words):
        self.client("FCALL", name, 0, *words)

    def steps(self):
        def each(name, words):
            return lambda: [self.call(name, words(ids))
                            for ids in self.batches]
        return {"add": each("add", list), "pump": each("pump", self.count),
                "take": each("take", self.count),
                "finish": each("finish", list)}

    @staticmethod
    def count(ids):
        return [len(ids)]


def show(name, cpu, calls, tasks):
    """Script, CPU of it; time in it, of it in commands; commands; which."""
    fcalls, spent = calls.pop("fcall", (0, 0))
    counts = sum(count for count, _ in calls.values())
    inside = sum(used for _, used in calls.values())
    most = sorted(calls.items(), key=lambda each: -each[1][1])[:SHOWN]
    print(f"    {name:<8}{cpu / tasks:>8.1f}{spent / tasks:>8.1f}"
          f"{inside / tasks:>8.1f}{counts / tasks:>8.2f}  ",
          " ".join(f"{command} {count / max(fcalls, 1):.3g}"
                   for command, (count, _) in most), flush=True)
    return cpu / tasks, spent / tasks, inside / tasks, counts / tasks


def measure_life(make, batch, **config):
    with Engine(**config) as engine, engine.client() as client:
        client("FUNCTION", "LOAD", LEAST)
        life, counter = make(client, batch), Counter(client)
        total = [0] * 4
        for name, step in life.steps().items():
            found = show(name, *counter.of(step), TASKS[batch])
            total = [sum(both) for both in zip(total, found)]
        print(f"    {'life':<8}" + "".join(
            f"{number:>8.1f}" for number in total[:3])
            + f"{total[3]:>8.2f}\n", flush=True)


def measure_empty():
    """What a script costs that has nothing to do."""
    print("  a script that has nothing to do, us; the last column is of the "
          "commands of one\n")
    with Engine(appendonly="yes", appendfsync="always") as engine, \
            engine.client() as client:
        client("FUNCTION", "LOAD", LEAST)
        space, counter = Space(client, "hwt", shards=1), Counter(client)
        sha = client("SCRIPT", "LOAD", "return 0")
        space("pump", 0, 1, "")
        tokens = iter(range(1, 1 << 30))

        def take():
            token = next(tokens)
            space("take", 0, "orders", "w", token, token - 1, 1, 30000)
        for name, call in (
                ("EVALSHA", lambda: client("EVALSHA", sha, 0)),
                ("FCALL", lambda: client("FCALL", "nothing", 0)),
                ("pump", lambda: space("pump", 0, 1, "")),
                ("take", take)):
            cpu, calls = counter.of(lambda f=call: [f() for _ in range(5000)])
            if "evalsha" in calls:
                calls["fcall"] = calls.pop("evalsha")
            show(name, cpu, calls, 5000)
        print()


def measure_lives():
    print(machine())
    print("""
us a task: CPU of Redis' main thread, time in the script, of that in Redis'
commands; commands a task; those that took most time, with calls a script
""")
    measure_empty()
    fsynced = {"appendonly": "yes", "appendfsync": "always"}
    for batch in SIZES:
        for title, make, config in (
                ("hwt_durable, fsynced", Life, fsynced),
                ("hwt_durable, without a file", Life, {}),
                ("the least commands, fsynced", Least, fsynced)):
            print(f"  {title}, {batch} in a script\n")
            measure_life(make, batch, **config)
    print(f"load {os.getloadavg()[0]:.1f} after")
    return 0


def used(client):
    text = client("INFO", "memory").decode()
    return int(text.split("used_memory:")[1].split()[0])


def measure_state(slots, queues, step):
    """Bytes a task when the step was done with all."""
    with Engine() as engine, engine.client() as client:
        space = Space(client, "hwt", shards=1, slots=slots)
        before = used(client)
        for first in range(0, MEMORY_TASKS, MEMORY_BATCH):
            space("add", 0, *sum((
                [name, f"q{(first + i) % queues:05d}", "in",
                 AHEAD + (first + i) * PRIME % (space.slots * space.tick)
                 if step == "add" else 0, 20, PAYLOAD, ""]
                for i, name in enumerate(numbered(first, MEMORY_BATCH))), []))
        while step != "add" and space("pump", 0, 1000, "")[0] > 0:
            pass
        token = 0
        while step == "finish":
            token += 1
            taken = [t for t in space("take", 0, "q00000", "w", token,
                                      token - 1, 512, 60000)
                     if isinstance(t, list)]
            if not taken:
                break
            space("finish", 0, *sum((
                [t[0], t[6], "done", 0] for t in taken), []))
        return (used(client) - before) / MEMORY_TASKS


def measure_memory():
    for name, given in (
            ("waiting, 100 in a bucket", (2048, 1, "add")),
            ("waiting, 3 in a bucket", (65536, 1, "add")),
            ("due, and in the queue", (65536, 1, "pump")),
            ("due, and in one of 10,000 queues", (65536, QUEUES, "pump")),
            ("ended, for the retention", (65536, 1, "finish"))):
        print(f"    {name:<34}{measure_state(*given):>6.0f}", flush=True)
    return 0
