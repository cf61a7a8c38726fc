#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- pump limit version: moves what is due from the wheel to the queues. A tick is
-- left behind only when nothing due is in its slot, so after a stop at any
-- place the next pump goes on where this one was.
--
-- FAIR. A queue gets an eighth of the limit, then every other queue whose tasks
-- are due in any tick has its turn; what is left of the limit goes to the
-- oldest. If the limit does not suffice for the turns, the next pump goes on
-- behind the last one: meta's turn is its tick and its queue. So nobody waits
-- for the backlog of another queue.

local SHARE = 8 -- of the limit, that a queue has in a turn
local PAGE, PAGE_MAX = 16, 256 -- members that are read at once
local SEEN_MAX = 8192 -- members that a pump reads
local LEASES_MAX = 10000 -- that it prolongs

local limit
local looked, seen, moved = 0, 0, 0 -- members
local got = {} -- how many each queue has had
local entries = {} -- ids by queue
local left = {} -- ticks in whose slots something due may be
local stopped -- by the limit: where the next pump goes on

-- Whether the record says what the member says. Text: its header and queue.
local function is_due_here(text, queue, slot, due)
	if #text ~= HEADER + #queue or sub(text, HEADER + 1) ~= queue then
		return false
	end
	local kind, state, attempts, most, length, generation, where, time =
		struct.unpack("<BBHHHI4I4I8", text)
	return kind == FORMAT and state % HAS_ENTRY == PENDING and
		attempts < most and length == #queue and generation >= 1 and
		where == slot and time == due
end

-- A member that no record names is dropped.
local function deliver(id, queue, slot, due)
	local text = try("GETRANGE", record_key(id), 0, HEADER + #queue - 1)
	if is_foreign(text) or not is_due_here(text, queue, slot, due) then
		if not load(id) then
			quarantine(id)
			count_waiting(-1, 0)
		end
		return
	end
	entries[queue] = entries[queue] or {}
	table.insert(entries[queue], id)
	moved = moved + 1
	count_waiting(-1, 1)
end

-- Whether the member leaves its bucket; if not, the queue whose turn is over.
local function visit(member, of_tick, share)
	local queue, due, id = read_member(member)
	if not queue then
		return true
	end
	local had = got[queue] or 0
	if due > now then
		return false, queue
	end
	if had >= share then
		left[of_tick] = true
		return false, queue
	end
	got[queue] = had + 1
	looked = looked + 1
	deliver(id, queue, of_tick % slots, due)
	if looked >= limit then
		stopped = format("%.0f %s", of_tick, queue)
	end
	return true
end

-- One page of a slot. Where the next one begins, or nil; and the size of that:
-- of a queue that is passed over, the rest of a page is read for nothing.
local function drain_page(of_tick, at, size, share)
	local bucket = bucket_key(of_tick % slots)
	local page = sure("ZRANGEBYLEX", bucket, at, "+", "LIMIT", 0, size)
	local gone, over, passed = {}, nil, 0
	for _, member in ipairs(page) do
		if over and sub(member, 1, #over + 1) == over .. "\0" then
			passed = passed + 1
		else
			local leaves
			leaves, over = visit(member, of_tick, share)
			gone[#gone + 1] = leaves and member or nil
			if stopped then
				break
			end
		end
	end
	if gone[1] then
		call("ZREM", bucket, unpack(gone))
	end
	seen = seen + #page
	if #page < size then
		return nil
	end
	return over and behind(over) or "(" .. page[#page],
		passed > size / 2 and size / 2 or min(size * 2, PAGE_MAX)
end

-- What is due in the slot of a tick, up to a share of each queue.
local function drain(of_tick, at, share)
	local size = PAGE
	while at and not stopped do
		if seen >= SEEN_MAX then
			stopped = format("%.0f %s", of_tick,
				match(at, "^.([A-Za-z0-9._-]*)"))
			break
		end
		at, size = drain_page(of_tick, at, size, share)
	end
	left[of_tick] = left[of_tick] or stopped and true
end

-- Where the last pump stopped, if it is between cursor and final.
local function read_turn(final)
	local of_tick, queue = match(last_turn or "",
		"^(%d+) ([A-Za-z0-9._-]*)$")
	of_tick = tonumber(of_tick)
	if not of_tick or of_tick < cursor or of_tick > final then
		return cursor, "-"
	end
	return of_tick, behind(queue)
end

-- Each queue in turn, then the oldest. What the turn has not come to is left.
local function take_turns(final)
	local first, at = read_turn(final)
	local count = final - cursor + 1
	local share = max(1, floor(limit / SHARE))
	for i = 0, count do
		if i == count and at == "-" then
			break
		end
		if stopped then
			left[cursor + (first - cursor + i) % count] = true
		else
			drain(cursor + (first - cursor + i) % count,
				i == 0 and at or "-", share)
		end
	end
	for each = cursor, final do
		if left[each] and not stopped then
			left[each] = nil
			drain(each, "-", limit)
		end
	end
end

-- Up to the tick of now. Whether something may be left.
local function turn()
	local last = floor(now / tick)
	cursor = max(cursor, last - slots + 1)
	local final = min(last, cursor + TICKS_MAX - 1)
	take_turns(final)
	while cursor < final and not left[cursor] do
		cursor = cursor + 1
	end
	for queue, ids in pairs(entries) do
		append(queue, unpack(ids))
	end
	return stopped ~= nil or final < last
end

-- What is due next lies in the slots of the ticks until then; in that of the
-- cursor there is also what came too late for its own.
local function find_next()
	local found = now + WAIT_MAX
	if pending <= 0 then
		return found
	end
	local first = cursor
	local last = min(floor(found / tick), first + slots - 1)
	for each = first, last do
		if each * tick >= found then
			break
		end
		local due, is_all = first_due(each % slots)
		found = min(found, not is_all and each * tick or due or found)
	end
	return max(found, now + 1)
end

-- Leases were given and extended while time stood still: as much is left of
-- them when it goes on. A worker extends long ones too rarely for the grace.
local function prolong_leases(by)
	local fly = prefix .. ":fly"
	local leases = sure("ZRANGE", fly, 0, LEASES_MAX - 1, "WITHSCORES")
	for i = 1, #leases, 2 do
		call("ZADD", fly, leases[i + 1] + by, leases[i])
	end
end

-- Until the leap has lasted, or is over. Nobody has looked for longer than
-- JUMP_MAX, or it has leapt again: it counts from anew.
local function weigh_leap()
	local seen = tonumber(call("HGET", KEYS[1], "seen") or "") or 0
	if not in_doubt then
		doubted = 0
	elseif doubted == 0 or real < seen or real - seen > JUMP_MAX then
		doubted = real
	elseif real - doubted >= JUMP_HOLD then
		doubted, in_doubt = 0, false
		prolong_leases(base - now)
		now, now_up = base, base_up
		resumed = now -- the workers get a while to extend their leases
	end
	call("HSET", KEYS[1], "doubted", doubted, "seen", real, "resumed",
		resumed)
end

-- Nothing moves while time stands still: no need to look more often.
local function wait_until(time)
	return in_doubt and WAIT_MAX or min(WAIT_MAX, max(time - real, 0))
end

local refused = open() or expect(4)
if refused then
	return refused
end
limit = whole(ARGV[3], 1, 1000)
if not limit then
	return refuse_argument(1, "limit")
end
local expected = ARGV[4] ~= "" and whole(ARGV[4], 0, WHOLE_MAX)
if ARGV[4] ~= "" and not expected then
	return refuse_argument(2, "version")
end
refused = admit("RPUSH", "SET", "ZADD", "ZRANGE", "ZRANGEBYLEX", "ZREM",
	"GETRANGE")
if refused then
	return refused
end
if expected and expected ~= version then
	return {-1, 0, version}
end
if in_doubt or doubted ~= 0 then
	weigh_leap()
end
local was_cursor, was_next = cursor, next_look
local more = turn()
local looked_for = more and now or find_next()
if cursor ~= was_cursor or changed then
	version = version + 1
end
next_look = looked_for
if cursor ~= was_cursor or changed or next_look ~= was_next then
	commit("turn", stopped or "")
end
local names = {}
for queue in pairs(entries) do
	names[#names + 1] = queue
end
table.sort(names)
return {moved, more and 0 or wait_until(looked_for), version, cursor, now,
	more and 1 or 0, ahead, in_doubt and real - now or 0, names}
