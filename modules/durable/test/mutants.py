#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults of our own in the scripts: each of the list must be found by the tests
of the scripts and clocks, or by three seeds of the random model. What is
replaced must stand in the file just once.

    mutants.py [PATTERN...]    the last line: tally FOUND SURVIVED SKIPPED
"""

import io
import multiprocessing
import sys
import unittest

import clocks
import model
import order
import scripts
from engine import Engine, Scripts, read_script_file

# File, name of the fault, what is there, what is put in its place.
MUTANTS = [
    ("common", "what an earlier call has put there is published",
     "earliest, are_long, changed, delta = nil, false, false, {}",
     "are_long, changed, delta = false, false, {}"),
    ("common", "a long record of an earlier call",
     "earliest, are_long, changed, delta = nil, false, false, {}",
     "earliest, changed, delta = nil, false, {}"),
    ("common", "what an earlier call has counted counts again",
     "earliest, are_long, changed, delta = nil, false, false, {}",
     "earliest, are_long, changed, delta = nil, false, false, delta or {}"),
    ("common", "what an earlier call has changed is told again",
     "earliest, are_long, changed, delta = nil, false, false, {}",
     "earliest, are_long, delta = nil, false, {}"),
    ("common", "no high-water mark",
     "base, base_up = max(real, clock), max(up, clock)",
     "base, base_up = real, up"),
    ("common", "a delay counts from the past millisecond",
     "and base or base_up + delay", "and base or base + delay"),
    ("common", "add does not look at the cursor",
     "floor(max(due, now) / tick) % slots", "floor(due / tick) % slots"),
    ("common", "what is due goes where the pass has been",
     "floor(max(due, now) / tick) % slots",
     "max(floor(due / tick), cursor) % slots"),
    ("common", "the slot of the next tick",
     "floor(max(due, now) / tick) % slots",
     "(floor(max(due, now) / tick) + 1) % slots"),
    ("common", "no guard of a clock that is behind",
     "if apart > skew or -apart > skew then", "if apart > skew then"),
    ("common", "no guard of a clock that is ahead",
     "if apart > skew or -apart > skew then", "if -apart > skew then"),
    ("common", "the caller is compared with the mark",
     "local apart = theirs - real", "local apart = theirs - now"),
    ("common", "no pause", "if paused ~= 0 then", "if false then"),
    ("common", "cancel does not count what was delivered",
     "count_waiting(0, -1)\n\tlocal key", "local key"),
    ("common", "a long queue is searched",
     "if length <= SHORT then", "if true then"),
    ("common", "the record of a long queue's entry goes before it",
     "task.has_entry = length > SHORT", ""),
    ("common", "cancel leaves the entry",
     'call("LREM", key, 0, id)', ""),
    ("add", "an entry that is left is forgotten",
     "task.has_entry = there.has_entry", ""),
    ("common", "cancel leaves it in the bucket",
     'if sure("ZREM", bucket_key(task.slot), member_of(id, task)) == 1 then',
     "if task.due > now then"),
    ("common", "what has ended keeps its payload",
     "local text = head(task)\n",
     'save(id, task)\n\tlocal text = call("GET", record_key(id))\n'),
    ("common", "no retention", 'text, "PX", retention)', "text)"),
    ("common", "retention ends early",
     'text, "PX", retention)', 'text, "PX", retention - 1)'),
    ("common", "one attempt too many",
     "if task.attempts >= task.max_attempts then",
     "if task.attempts > task.max_attempts then"),
    ("common", "foreign keys are deleted",
     'call("RENAME", key, prefix .. ":aside" .. sub(key, #prefix + 1))',
     'call("DEL", key)'),
    ("common", "any error is a foreign key",
     "error(reply)", "return true"),
    ("common", "the mark is not kept",
     '"clock", now, "cursor"', '"clock", real, "cursor"'),
    ("common", "the cursor is not kept",
     '"clock", now, "cursor", cursor,', '"clock", now,'),
    ("common", "nothing is published",
     "if earliest and earliest < next_look then", "if false then"),
    ("common", "it is always published",
     "if earliest and earliest < next_look then", "if earliest then"),
    ("common", "numbers in any form",
     'if #text > 16 or not find(text, "^[0-9]+$") then',
     "if not tonumber(text) then"),
    ("common", "numbers of any size",
     "if value < low or value > high then", "if value < low then"),
    ("common", "names of any bytes",
     'and\n\t\tnot find(text, "[^A-Za-z0-9._%-]")', ""),
    ("common", "ids of any length",
     "#text >= 1 and #text <= ID_MAX", "#text >= 1"),
    ("common", "a lost record stays lost", 'if text == "" then\n\t\tcall',
     "if false then\n\t\tcall"),
    ("common", "every record is sound",
     "if not is_sound(task, length) or", "if"),
    ("common", "every format is ours",
     "if kind ~= FORMAT and kind ~= FORMAT_OPTIONS then", "if false then"),
    ("common", "a counter that is not kept",
     'try("HINCRBY", KEYS[1], name, by)', ""),
    ("common", "nobody asks for the rights",
     "if not redis.acl_check_cmd(command, KEYS[1], KEYS[1]) then",
     "if false then"),
    ("common", "nobody asks for the rights to the counters",
     '{"HSET", "HINCRBY", "RENAME", ...}', '{"HSET", "RENAME", ...}'),
    ("add", "nobody asks for the right to the wheel",
     '"UNLINK", "ZADD",\n', '"UNLINK",\n'),
    ("take", "nobody asks for the right to remember it",
     '"SET", "SETRANGE", "UNLINK",', '"SETRANGE", "UNLINK",'),
    ("take", "what stopped it is not said",
     "taken[#taken + 1] = is_cut and 1 or nil", ""),
    ("take", "it was cut by what it handed over alone",
     "bytes + passed >= BYTES_MAX)", "bytes >= BYTES_MAX)"),
    ("take", "any take was cut",
     "is_cut = #taken < limit and\n\t\t", "is_cut = #taken < limit or "),
    ("init", "keys are not asked for",
     'if not redis.acl_check_cmd("RENAME", key, key) then',
     "if false then"),
    ("add", "what is there is overwritten",
     'text, "NX")', "text)"),
    ("add", "what is there is overwritten with others",
     'call("EXISTS", unpack(keys)) == 0', "true"),
    ("add", "an id twice is stored twice",
     "if there[key] or tasks[i].schedule then",
     "if tasks[i].schedule then"),
    ("add", "many are in no bucket",
     'sure("ZADD", bucket_key(slot), unpack(each))', ""),
    ("add", "many are not counted", 'count("added", #tasks)', ""),
    ("add", "what has not ended is replaced",
     "there.state < SUCCEEDED", "there.state < PENDING"),
    ("add", "a dead letter that is replaced stays one",
     'sure("ZREM", prefix .. ":dead", id)', ""),
    ("add", "the generation begins anew",
     "task.generation = there.generation + 1", ""),
    ("add", "why stays when the dead letter goes",
     'call("UNLINK", error_key(id))', ""),
    ("dead", "why stays when the dead letter goes",
     'call("UNLINK", error_key(id))', ""),
    ("finish", "why is as long as it likes",
     "#why > WHY_MAX", "#why > 2 * WHY_MAX"),
    ("common", "it does not expire", "now_up > task.expires", "false"),
    ("common", "it expires when it is due",
     "now_up > task.expires", "now_up >= task.expires"),
    ("common", "a part of a millisecond is not too late",
     "now_up > task.expires", "now > task.expires"),
    ("common", "options that are not there are read",
     "if #text ~= OPTIONS then\n\t\treturn false",
     "if #text ~= OPTIONS then\n\t\treturn true"),
    ("common", "an older version takes options for a payload",
     "task.options and FORMAT_OPTIONS or FORMAT", "FORMAT"),
    ("add", "an older version is not refused",
     'commit("format", needed)', "commit()"),
    ("add", "it may expire before it is due",
     "task.expires >= task.due", "true"),
    ("add", "an option twice", "return not task.expires and", "return"),
    ("take", "what expires is counted as waiting",
     "bury_expired(id, task)\n\t\tcount_waiting(0, -1)",
     "bury_expired(id, task)"),
    ("take", "what was lost is handed over when it has expired",
     "if runs and was_lost and is_expired(task) then", "if false then"),
    ("take", "what may have come expires",
     "if runs and was_lost and is_expired(task) then",
     "if runs and is_expired(task) then"),
    ("take", "what has expired keeps its lease",
     'sure("ZREM", prefix .. ":fly", id)', ""),
    ("dead", "a replay expires again", "if is_expired(task) then",
     "if false then"),
    ("dead", "a replay never expires", "if is_expired(task) then",
     "if task.expires then"),
    ("reschedule", "it is moved to when it has expired",
     "if task.expires and due > task.expires then", "if false then"),
    ("add", "513 tasks", "or total > BATCH_MAX then", "then"),
    ("add", "a bad task is left out",
     "if wrong then\n\t\treturn refuse_argument(i, wrong)\n\tend\n"
     "\ttasks[i] = task",
     "if wrong then\n\t\ttask = tasks[1] or task\n\tend\n"
     "\ttasks[i] = task"),
    ("add", "a payload of any size",
     '#ARGV[at + 5] > PAYLOAD_MAX and "payload" or', ""),
    ("add", "payloads of any size together",
     'bytes + #ARGV[at + 5] > BYTES_MAX and "payloads" or', ""),
    ("take", "payloads of any size together", "bytes = bytes + #text", ""),
    ("cancel", "a running task is cancelled",
     "if task and task.state == RUNNING then\n\treturn -115\nend",
     "if task and task.state == RUNNING then\n\ttask.state = DELIVERED\nend"),
    ("cancel", "what has failed is cancelled",
     "task.state > RUNNING then", "task.state > FAILED then"),
    ("reschedule", "it keeps the generation", "renew(task)", ""),
    ("common", "the generation stays",
     "task.generation = task.generation + 1", ""),
    ("common", "the attempts stay", "task.attempts = 0", ""),
    ("finish", "no fence", "task and task.fence == attempt", "task"),
    ("finish", "an id twice ends twice", "not done[id] and read(i)",
     "read(i)"),
    ("common", "long records are read whole", "#text > LONG", "false"),
    ("finish", "any end is a repeated one",
     "return task.state == SUCCEEDED", "return task.state >= SUCCEEDED"),
    ("finish", "a failure after the success is accepted",
     'return task.state == FAILED and outcome ~= "back"',
     'return outcome ~= "back"'),
    ("finish", "what is released counts",
     "task.attempts = max(task.attempts - 1, 0)", ""),
    ("finish", "it stays in fly",
     'sure("ZREM", prefix .. ":fly", unpack(over))', ""),
    ("finish", "whoever is not running finishes too",
     "if not is_last or task.state ~= RUNNING then",
     "if not is_last or task.state > RUNNING then"),
    ("finish", "a repeated one is stale",
     "is_last and is_repeated(task, outcome)) and", "false) and"),
    ("finish", "what is released is not counted",
     'count("given_back", 1)', ""),
    ("extend", "no fence",
     " or\n\t\ttask.fence ~= tonumber(ARGV[at + 1]) then", " then"),
    ("extend", "the lease stays",
     'sure("ZADD", prefix .. ":fly", unpack(leases))', ""),
    ("take", "what was not received is lost",
     "if received < last[1] then", "if false then"),
    ("take", "what was received is handed over again",
     "if received < last[1] then", "if true then"),
    ("take", "the same take says that it was lost",
     "token > last[1], visibility", "true, visibility"),
    ("take", "what was lost counts", "refund(id, attempt)", ""),
    ("take", "the same take gets more",
     "if not taken[1] and not stands and token > last[1] then",
     "if not taken[1] and not stands then"),
    ("take", "a lost take gets more", "if not taken[1] and not", "if not"),
    ("take", "any take was received",
     "if not received or received >= token then", "if not received then"),
    ("common", "the last doubt counts", "if task.doubt == attempt then",
     "if false then"),
    ("common", "the doubt before counts",
     "elseif task.doubt_before == attempt then", "elseif false then"),
    ("common", "a doubt stays",
     "task.doubt, task.doubt_before = task.doubt_before, 0", ""),
    ("common", "the doubt before stays", "\t\ttask.doubt_before = 0\n", ""),
    ("common", "any attempt was in doubt",
     "\telse\n\t\treturn false\n\tend\n\ttask.attempts",
     "\tend\n\ttask.attempts"),
    ("common", "a refund is not counted", 'count("given_back", 1)', ""),
    ("common", "what is dead stays so",
     "if task.state == FAILED and task.slot == 0 then", "if false then"),
    ("common", "what a worker has failed comes back",
     "if task.state == FAILED and task.slot == 0 then",
     "if task.state == FAILED then"),
    ("common", "doubts of another generation",
     "task.doubt, task.doubt_before = 0, 0", ""),
    ("common", "what has succeeded comes back",
     " or task.state == SUCCEEDED then", " then"),
    ("janitor", "no doubts",
     "task.doubt, task.doubt_before = task.fence, task.doubt", ""),
    ("janitor", "one doubt alone",
     "task.doubt, task.doubt_before = task.fence, task.doubt",
     "task.doubt = task.fence"),
    ("finish", "a late release counts",
     'outcome == "back" and refund(id, attempt)', "false"),
    ("finish", "nobody has failed it", "bury(id, task, why, true)",
     "bury(id, task, why)"),
    ("take", "a repeated take renews no lease",
     'sure("ZADD", prefix .. ":fly", unpack(leases))',
     'if delta.begun then sure("ZADD", prefix .. ":fly", unpack(leases)) end'),
    ("take", "a take is forgotten with its leases",
     "visibility + KEPT)", "visibility)"),
    ("take", "a late take is served",
     "if token < last[1] then", "if false then"),
    ("take", "any entry will do",
     "if task.state ~= PENDING or task.due > now or task.queue ~= queue then",
     "if task.state ~= PENDING then"),
    ("take", "early, by an entry of before", "task.due > now or ", ""),
    ("take", "an entry of any queue", " or task.queue ~= queue then",
     " then"),
    ("take", "tasks in any state",
     "if task.state ~= PENDING or task.due > now", "if task.due > now"),
    ("take", "an entry twice in a page",
     "if seen[id] then\n\t\treturn\n\tend", ""),
    ("take", "it stays in its bucket",
     "if is_covered(task.slot) then", "if false then"),
    ("take", "what it takes out of a bucket is not counted",
     "count_waiting(-gone, gone)", ""),
    ("take", "a record that was kept for its entry stays",
     'call("PTTL", record_key(id)) == -1 then', "false then"),
    ("take", "attempts are not counted",
     "task.attempts = task.attempts + 1", ""),
    ("take", "a repeated take gets what others have",
     " and\n\t\t\ttask.fence == attempt", ""),
    ("take", "the fence is generation and attempt",
     "task.fence = fence", "task.fence = task.generation * 2 ^ 20 + "
     "task.attempts"),
    ("take", "the fence is the due time",
     "fence = fence + 1\n\ttask.fence = fence", "task.fence = task.due"),
    ("take", "the tasks of a take have one fence",
     "fence = fence + 1\n\ttask.fence = fence", "task.fence = fence + 1"),
    ("take", "the last fence is not kept",
     'commit("fence", fence)', "commit()"),
    ("common", "the fence is the clock's alone",
     'max(whole(last or "", 0, WHOLE_MAX) or 0, now * 1000)', "now * 1000"),
    ("common", "the fence is counted alone",
     'max(whole(last or "", 0, WHOLE_MAX) or 0, now * 1000)',
     'whole(last or "", 0, WHOLE_MAX) or 0'),
    ("take", "entries stay", 'call("LTRIM", key, count, -1)', ""),
    ("take", "entries that it has not looked at go",
     'call("LTRIM", key, count, -1)', 'call("LTRIM", key, #ids, -1)'),
    ("take", "no lease", "leases[#leases + 1] = now + visibility",
     "leases[#leases + 1] = now"),
    ("take", "more than asked for",
     "if #taken == limit or bytes", "if bytes"),
    ("pump", "the cursor moves too early",
     "cursor = kept and give_rest(final, kept, first) or final",
     "give_rest(final, kept or final, first)\n\tcursor = final"),
    ("pump", "what the pass has not come to is forgotten",
     "if stopped then\n\t\treturn format", "if stopped then\n"
     "\t\tcursor = final\n\t\treturn format"),
    ("pump", "no second pass", 'if at ~= "-" and not stopped then',
     "if false then"),
    ("pump", "what a second pass has left can wait",
     "more = stopped and (kept or looked >= limit)", "more = false"),
    ("pump", "what the limit has stopped is forgotten",
     "if stopped then\n\t\t\treturn each", "if false then"),
    ("pump", "the rest of a queue at the limit is forgotten",
     'lane)\n\t\tleft[of_tick] = true', "lane)"),
    ("pump", "the rest of a queue in a page is forgotten",
     'left[of_tick] = left[of_tick] or sub(at, 1, 1) == "("', ""),
    ("pump", "what an earlier pump has left is forgotten",
     "kept = kept or left[each] and each", "kept = left[each] and each"),
    ("pump", "what an earlier pump has left is not moved",
     "if each <= known or left[each] then", "if left[each] then"),
    ("pump", "what is more than a share is forgotten",
     "if had >= share then\n\t\tleft[of_tick] = true",
     "if had >= share then"),
    ("pump", "no shares", "floor(limit / SHARE)", "limit"),
    ("pump", "no turn", 'commit("turn", goes_on)', "commit()"),
    ("pump", "the turn goes on in the same queue",
     "of_tick, behind(lane)", 'of_tick, "-"'),
    ("pump", "nothing for the oldest",
     "if each <= known or left[each] then", "if false then"),
    ("pump", "the rest of a queue is read",
     "return over and behind(over) or", "return"),
    ("pump", "it reads on for ever", "if seen >= SEEN_MAX then",
     "if false then"),
    ("pump", "the cursor moves past now",
     "first) or final", "first) or final + 1"),
    ("pump", "a rotation less one slot",
     "cursor = max(cursor, last - slots + 1)",
     "cursor = max(cursor, last - slots + 2)"),
    ("pump", "no jump over rotations",
     "cursor = max(cursor, last - slots + 1)",
     "cursor = last"),
    ("pump", "the record is not asked", "time == due", "true"),
    ("pump", "early by a tick", "if due > now then\n\t\treturn false",
     "if due > now + tick then\n\t\treturn false"),
    ("pump", "a stray member counts", "where == slot and", ""),
    ("pump", "a stray member of a task with options counts",
     "task.slot == slot and", ""),
    ("pump", "a member of a queue with a shorter name counts",
     "HEADER + length) == lane", "HEADER + #lane) == lane"),
    ("pump", "a member of a queue with a shorter name counts, with options",
     " and lane_of(task) == lane", ""),
    ("pump", "a member of any queue counts",
     " and\n\t\tsub(text, HEADER + 1, HEADER + length) == lane", ""),
    ("pump", "in any state", "and state % HAS_ENTRY == PENDING and", "and"),
    ("pump", "members stay in the bucket",
     'call("ZREM", bucket, unpack(gone))', ""),
    ("pump", "not in its queue",
     'append(lane, unpack(ids))', ""),
    ("pump", "wait looks not at the present slot",
     "for each = first, last do\n\t\tif each * tick",
     "for each = first + 1, last do\n\t\tif each * tick"),
    ("pump", "wait is always a second",
     "not is_all and each * tick or due or found", "found"),
    ("pump", "wait does not know of what it has not looked at",
     "not is_all and each * tick or due or found", "due or found"),
    ("pump", "the version stays", "version = version + 1", ""),
    ("pump", "the version is not compared",
     "if expected and expected ~= version then", "if false then"),
    ("common", "a leap is believed at once",
     "in_doubt = real - max(clock, tonumber(witness) or 0) > JUMP_MAX",
     "in_doubt = false"),
    ("common", "nobody is a witness", "tonumber(witness) or 0", "0"),
    ("pump", "a leap is believed when it is seen again",
     "elseif real - doubted >= JUMP_HOLD then", "else"),
    ("pump", "a second leap does not count anew",
     "real < seen or real - seen > JUMP_MAX then", "real < seen then"),
    ("pump", "a leap that is over counts",
     "\t\tdoubted = 0\n\telseif", "\telseif"),
    ("pump", "leases end by a leap", "prolong_leases(base - now)", ""),
    ("pump", "no time to extend after a leap", "resumed = now --", "--"),
    ("resume", "a pause that ended in doubt ends in the past",
     '"resumed", base', '"resumed", now'),
    ("pump", "next is not kept", "next_look = looked_for", ""),
    ("pump", "no word of the queues", "names[#names + 1] = queue", ""),
    ("tell", "hints stay", 'call("LTRIM", key, -HINTS_MAX, -1)', ""),
    ("tell", "hints stay for ever", 'call("PEXPIRE", key, KEPT)', ""),
    ("tell", "anything is a hint",
     'not find(shards, "^[0-9 ]*[0-9]$")', "false"),
    ("janitor", "no time to extend after a pause",
     "if resumed ~= 0 and now - resumed < GRACE", "if false"),
    ("common", "no back-off",
     "floor(math.random() * min(longest, task.most or MOST))", "0"),
    ("common", "no jitter", "floor(math.random() * min(", "floor(min("),
    ("common", "a back-off without an end",
     "min(longest, task.most or MOST)", "longest"),
    ("common", "the first delay of others", "(task.first or FIRST)", "FIRST"),
    ("common", "the factor of others", "(task.factor or FACTOR)", "FACTOR"),
    ("common", "the most of others", "task.most or MOST", "MOST"),
    ("common", "a factor of less than 1",
     "factor >= FACTOR_MIN and", "true and"),
    ("common", "the most is less than the first", "first <= most", "true"),
    ("finish", "all wait equally long",
     "math.randomseed(task.fence % 2147483647)", "math.randomseed(7)"),
    ("finish", "what is no retry has no delay", 'sub(ARGV[at + 2], 1, 5) '
     '~= "retry")', "false)"),
    ("janitor", "the random number is not used",
     "math.randomseed(random % 2147483647)", ""),
    ("janitor", "leases end early",
     '"ZRANGEBYSCORE", fly, "-inf", now, "LIMIT"',
     '"ZRANGEBYSCORE", fly, "-inf", now + 1, "LIMIT"'),
    ("janitor", "a lost entry is not missed",
     "if not is_lost(id, lane_of(task)) then", "if true then"),
    ("janitor", "an entry that is there is put there again",
     "if not is_lost(id, lane_of(task)) then", "if false then"),
    ("janitor", "the walk stays at its begin", "walk = reply[1]", ""),
    ("janitor", "the walk takes a name for a pattern",
     r'string.gsub(first, "[][*?^\\-]", "\\%0")', "first"),
    ("janitor", "a running task without a lease has none",
     'return sure("ZADD", fly, "NX", now + LEASE, id)', "return 0"),
    ("janitor", "a pending task without a bucket has none",
     'return sure("ZADD", bucket_key(task.slot), 0,\n'
     "\t\t\tmember_of(id, task))", "return 0"),
    ("janitor", "the record of a lost entry stays",
     "return expire(id, task)", "return 0"),
    ("common", "the slot of now counts as missed",
     "<= floor(now / tick) - cursor", "< floor(now / tick) - cursor"),
    ("common", "a queue is not noted",
     'sure("ZADD", prefix .. ":queues", "NX", now, match(lane, "^[^+,]+"))',
     ""),
    ("janitor", "queues keep their first place",
     'call("ZADD", key, "XX", due, queue)', ""),
    ("janitor", "an empty queue stays", 'call("ZREM", key, queue)', ""),
    ("queues", "what is left out is not told", "all = 0", "all = 1"),
    ("queues", "a paused queue without tasks is not told",
     '{":queues", ":paused"}', '{":queues"}'),
    ("common", "high and low share a lane",
     'local MARKS = {"+", ","}', 'local MARKS = {"+", "+"}'),
    ("common", "low begins before normal",
     "{queue .. MARKS[HIGH], queue, queue .. MARKS[LOW]}",
     "{queue .. MARKS[HIGH], queue .. MARKS[LOW], queue}"),
    ("common", "high begins last",
     "{queue .. MARKS[HIGH], queue, queue .. MARKS[LOW]}",
     "{queue, queue .. MARKS[LOW], queue .. MARKS[HIGH]}"),
    ("common", "a space of before looks at all lanes",
     "if shard_format < FORMAT_LANES then\n\t\treturn", "if false then\n"
     "\t\treturn"),
    ("common", "a priority is not kept with a time", "\t\ttask.priority or 0)",
     "\t\t0)"),
    ("common", "a priority of another number is low",
     "priority <= LOW and", "true and"),
    ("common", "depth is that of the normal lane",
     'local length = try("LLEN", lane_key(lane))',
     'local length = try("LLEN", lane_key(queue))'),
    ("common", "the age of a queue is that of its last lane",
     "found = due and min(found or due, due) or found\n\tend\n\treturn found",
     "found = due or found\n\tend\n\treturn found"),
    ("common", "a lane is noted as a queue",
     'match(lane, "^[^+,]+")', "lane"),
    ("pump", "a lane is told as a queue",
     'local queue = match(lane, "^[^+,]+")', "local queue = lane"),
    ("pump", "a queue is told twice", "told[queue] = true", ""),
    ("pump", "it goes on behind the queue's first lane",
     '"^.([A-Za-z0-9._+,-]*)"', '"^.([A-Za-z0-9._-]*)"'),
    ("pump", "it begins anew after a lane",
     "(%d+) ([A-Za-z0-9._+,-]*)$", "(%d+) ([A-Za-z0-9._-]*)$"),
    ("pump", "a member of another priority is moved",
     "lane_of(task) == lane", "task.queue == match(lane, '^[^+,]+')"),
    ("take", "each lane may be looked at for as long",
     "for _, lane in ipairs(lanes_of(queue)) do",
     "for _, lane in ipairs(lanes_of(queue)) do\n\t\tlooked = 0"),
    ("add", "a shard with priorities is open to older versions",
     "task.priority and FORMAT_LANES or", ""),
    ("add", "a shard has the format of its last task",
     "if needed > shard_format then", "if needed > FORMAT then"),
    ("add", "two priorities are one",
     "PRIORITIES[word] and not task.priority then", "PRIORITIES[word] then"),
    ("janitor", "a record waits for its entry in its own lane alone",
     "for _, lane in ipairs(lanes_of(task.queue)) do",
     "for _, lane in ipairs({lane_of(task)}) do"),
    ("janitor", "what is mended becomes normal",
     "append(lane_of(task), id)", "append(task.queue, id)"),
    ("dead", "drop leaves an entry in another lane",
     "for _, lane in ipairs(lanes_of(task.queue)) do",
     "for _, lane in ipairs({lane_of(task)}) do"),
    ("audit", "an entry of any lane is its own",
     "lane_key(lane_of(task))", "lane_key(task.queue)"),
    ("queues", "a queue that is only executed is not told",
     "tell(queue, now)", ""),
    ("queues", "all that run are read",
     "if size <= RUNNING_MAX then", "if true then"),
    ("queues", "the first of those that run stand for all",
     "floor((part + now % 1000 / 1000) *", "floor(0 *"),
    ("queues", "those that were not read do not run",
     "floor(found * size / #ids + 0.5)", "found"),
    ("take", "a paused queue is taken from",
     "if not taken[1] and not stands and", "if not taken[1] and"),
    ("take", "what runs is not handed over in a pause of its queue",
     "if received < last[1] then",
     "if received < last[1] and not stands then"),
    ("common", "a foreign key pauses a queue",
     'not is_foreign(since) and tonumber(since or "")', "since"),
    ("queue", "a pause that is repeated begins anew", '"NX", now', "now"),
    ("queue", "a resume does nothing",
     'changes = sure("ZREM", key, ARGV[4])', "changes = 0"),
    ("queue", "a pause does not move the mark", "commit()", ""),
    ("init", "the key of paused queues is not asked for",
     '"paused", "schedules"', '"schedules"'),
    ("janitor", "the scan finds nothing",
     "if not is_covered(scan) then", "if false then"),
    ("janitor", "the scan stands still",
     "scan = (scan + 1) % slots", "scan = scan"),
    ("dead", "replay keeps the generation", "renew(task)", ""),
    ("dead", "drop leaves an entry",
     'sure("LREM", lane_key(lane), 0, id)', ""),
    ("dead", "drop keeps the record", 'call("UNLINK", record_key(id))', ""),
    ("dead", "it stays where the dead are",
     'sure("ZREM", set, id)', ""),
    ("dead", "anything is dropped",
     'elseif sure("ZSCORE", prefix .. ":bad", id) then',
     "elseif true then"),
    ("resume", "nobody knows when", '"resumed", base', '"resumed", 0'),
    ("init", "as many buckets for each shard",
     "slots * shards > BUCKETS and", "false and"),
    ("init", "any shape",
     "if i ~= 4 and shape[i] and shape[i] ~= there[i] then",
     "if false then"),
    ("init", "any number of slots",
     "if shape[2] and bit.band(shape[2], shape[2] - 1) ~= 0 then",
     "if false then"),
    ("hosts", "the dead stay",
     'sure("ZREMRANGEBYSCORE", KEYS[1], "-inf", real - lease)', ""),
    ("hosts", "the future stays",
     'call("ZREMRANGEBYSCORE", KEYS[1], real + lease, "+inf")', ""),
    ("common", "delivered is pending", "and DELIVERED or task.state",
     "and task.state or task.state"),
    ("common", "what is due is delivered",
     "and\n\t\tnot is_in_bucket(id, task) and DELIVERED", "and DELIVERED"),
    ("audit", "members are not looked at",
     'complain("not in " .. set)', ""),
    ("audit", "counters are not compared",
     "if tonumber(meta[name]) ~= counted then", "if false then"),
    ("common", "the time of schedules is not read",
     'whole(meta[18] or "", 0, WHOLE_MAX) or NEVER', "NEVER"),
    ("pump", "it does not wait for schedules",
     "looked_for = min(looked_for, next_schedule)", ""),
    ("pump", "it does not tell of schedules",
     "next_schedule <= now and 1 or 0", "0"),
    ("stat", "a schedule that is due is no lag",
     "if next_schedule <= now then", "if false then"),
    ("add", "an occurrence is added twice",
     "if last and last >= task.due then", "if false then"),
    ("add", "what is known of an occurrence is not kept",
     'call("SET", key, format("%.0f", task.due))', ""),
    ("add", "an occurrence of long ago is added",
     " and\n\t\t(tonumber(ARGV[1]) or read) - read <= READ_MAX", ""),
    ("add", "any task may be an occurrence",
     '\n\t\tARGV[at + 2] == "at" and', ""),
    ("add", "many occurrences are stored as tasks",
     "if there[key] or tasks[i].schedule then", "if there[key] then"),
    ("schedule", "what is put is not looked at",
     'sure("ZADD", schedules_key(), now, name)', ""),
    ("schedule", "what is put again is changed",
     "if same == #SAID and", "if false and"),
    ("schedule", "another time keeps what it has missed",
     "if same < WHEN then", "if not there[1] then"),
    ("schedule", "another task begins anew",
     "if same < WHEN then", "if true then"),
    ("schedule", "all versions are the same",
     "version = version + 1\n", ""),
    ("schedule", "a move of another version",
     "there[1] ~= ARGV[at + 1] or not before", "not before"),
    ("schedule", "a move goes back", "last < before or", ""),
    ("schedule", "a move goes beyond now",
     "or\n\t\tlast > max(now, before) then", "then"),
    ("schedule", "a move does not say until when",
     'call("HSET", schedule_key(name), "last", ARGV[at + 2])', ""),
    ("schedule", "a move does not say when to look",
     'sure("ZADD", schedules_key(), ARGV[at + 3], name)', ""),
    ("schedule", "what an older version has put is changed",
     'same >= WHOLE and "0"', "false"),
    ("schedule", "an older version adds tasks without options",
     "return shard_format < FORMAT_OPTIONS and", "return false and"),
    ("schedule", "retries of any kind",
     "not check_retries() and 11 or nil", "nil"),
    ("schedule", "pumps learn nothing of it",
     'commit("schedule", first', 'commit("scheduled", first'),
    ("schedule", "a drop leaves it",
     'call("UNLINK", schedule_key(ARGV[4]))', "1"),
    ("schedules", "the first ones are in the way of others",
     "real % max(count - MOST + 1, 1)", "0"),
]


# Some of their tests take seconds, or start the engine anew: others come first.
SLOW = (scripts.Queues, scripts.Fair, scripts.Rights, scripts.Failure)


def changed(file, old, new):
    def change(name, text):
        if name != file:
            return text
        if text.count(old) != 1:
            raise ValueError(f"{file}.lua has it {text.count(old)} times, "
                             f"not once: {old!r}")
        return text.replace(old, new)
    return change


def found_by_tests(change):
    """The first test that fails, or None."""
    case = scripts.Case
    if case.engine is None:
        case.engine = Engine(clock=True)
    else:
        # The test that failed may have left a reply unread.
        case.client.close()
    case.client = case.engine.client()
    case.scripts = Scripts(case.client, change)
    classes = [each for file in (scripts, order)
               for each in vars(file).values()
               if isinstance(each, type) and issubclass(each, case)
               and each not in (case, scripts.Race)]  # its clock runs
    classes.sort(key=lambda each: each in SLOW and 1 + SLOW.index(each))
    suite = unittest.TestSuite(
        map(unittest.TestLoader().loadTestsFromTestCase, classes))
    clocks.Scripts.change = staticmethod(change)
    suite.addTests(
        unittest.TestLoader().loadTestsFromTestCase(clocks.Scripts))
    result = unittest.TextTestRunner(
        stream=io.StringIO(), failfast=True).run(suite)
    bad = result.failures + result.errors
    return str(bad[0][0]).split(" (", maxsplit=1)[0] if bad else None


def found_by_model(change):
    for seed in (1, 2, 3):
        if model.run_seed(seed, 200, change, quiet=True):
            return f"seed {seed} of the model"
    return None


def try_one(mutant):
    file, name, old, new = mutant
    change = changed(file, old, new)
    return file, name, found_by_tests(change) or found_by_model(change)


def run_share(mutants, pipe):
    """One process: an engine and some of the list."""
    try:
        for mutant in mutants:
            pipe.send(try_one(mutant))
    finally:
        if scripts.Case.engine:
            scripts.Case.engine.close()
        pipe.close()


def run_all(mutants, processes):
    """Yields what came of each, as it comes."""
    started = []
    try:
        for share in range(processes):
            pipe, other = multiprocessing.Pipe(False)
            process = multiprocessing.Process(
                target=run_share, args=(mutants[share::processes], other))
            process.start()
            other.close()
            started.append((process, pipe))
        for process, pipe in started:
            try:
                while True:
                    yield pipe.recv()
            except EOFError:
                pass
    finally:
        for process, _ in started:
            process.terminate()
            process.join()


def main(patterns):
    mutants = [each for each in MUTANTS if not patterns or any(
        pattern in f"{each[0]}: {each[1]}" for pattern in patterns)]
    for file, _, old, new in mutants:
        changed(file, old, new)(file, read_script_file(file))
    nothing = ("common", "nothing", "local call,", "local call,")
    found = survived = 0
    for file, name, by in run_all([nothing] + mutants, 2):
        if name == "nothing":
            if by:
                print("the tests fail without any fault:", by)
                return 1
            continue
        found, survived = found + bool(by), survived + (not by)
        print(f"{file}: {name}: {by or 'SURVIVED'}", flush=True)
    missing = len(mutants) - found - survived
    print("tally", found, survived + missing, 0)
    return 1 if survived or missing or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
