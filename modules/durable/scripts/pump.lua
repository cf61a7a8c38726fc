#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- pump limit version, and maybe notify: moves what is due from the wheel to the
-- queues. A tick is left behind only when nothing due is in its slot, so after
-- a stop at any place the next pump goes on where this one was. With notify, a
-- hint is written for each queue that got something; the answer has the queues
-- for which it cannot be, and all without notify.
--
-- A PASS goes through all ticks from cursor to that of its begin, and in each
-- through all lanes; one pump, or several if there is too much for one. What
-- is put into the wheel meanwhile, and is due, goes into the slot of a tick
-- that is not earlier than the pass's last one; so whatever is due in those
-- before was there when the pass began, and has been seen when it ends: then
-- the cursor moves. meta's turn says where a pass goes on: its last tick; the
-- first in which something due was left, or "-"; the tick and lane behind which
-- to go on.
--
-- FAIR. In a pass, a lane gets an eighth of the limit; what is left of the
-- limit when the pass or the pump ends goes to the oldest. So nobody waits for
-- the backlog of another queue, or of another priority.

local SHARE = 8 -- of the limit, that a lane has in a turn
local PAGE, PAGE_MAX = 16, 256 -- members that are read at once
-- Members that a pump reads to give shares, and as many again for what is left:
-- two or three milliseconds each.
local SEEN_MAX = 2048
local LEASES_MAX = 10000 -- that it prolongs

local limit
local looked, seen, moved = 0, 0, 0 -- members
local got = {} -- how many each lane has had
local entries = {} -- ids by lane
local left = {} -- ticks in whose slots something due may be
local stopped -- by the limit: the tick and lane behind which to go on

-- Whether the record says what the member says.
local function is_due_here(text, lane, slot, due)
	if #text < HEADER then
		return false
	end
	local kind, state, attempts, most, length, generation, where, time =
		struct.unpack("<BBHHHI4I4I8", text)
	if kind == FORMAT_OPTIONS then
		local task = unpack_record(text)
		return task and task.state == PENDING and task.slot == slot and
			task.due == due and lane_of(task) == lane
	end
	return kind == FORMAT and state % HAS_ENTRY == PENDING and
		attempts < most and generation >= 1 and where == slot and
		time == due and
		sub(text, HEADER + 1, HEADER + length) == lane
end

-- Those that their records name go to their queues; a member that no record
-- names is dropped.
local function deliver(found, slot)
	local read = read_headers(found)
	local lost, into_queues = 0, 0
	for i, id in ipairs(found) do
		local lane, text = found.lanes[i], read(i)
		if text and is_due_here(text, lane, slot, found.dues[i]) then
			entries[lane] = entries[lane] or {}
			table.insert(entries[lane], id)
			into_queues = into_queues + 1
		elseif not load(id) then
			quarantine(id)
			lost = lost + 1
		end
	end
	moved = moved + into_queues
	if lost + into_queues > 0 then
		count_waiting(-lost - into_queues, into_queues)
	end
end

-- Whether the member leaves its bucket; if not, the lane whose turn is over.
local function visit(member, of_tick, share, found)
	local lane, due, id = read_member(member)
	if not lane then
		return true
	end
	local had = got[lane] or 0
	if due > now then
		return false, lane
	end
	if had >= share then
		left[of_tick] = true
		return false, lane
	end
	got[lane] = had + 1
	looked = looked + 1
	local i = #found + 1
	found[i], found.lanes[i], found.dues[i] = id, lane, due
	if looked >= limit then
		stopped = format("%.0f %s", of_tick, lane)
		left[of_tick] = true
	end
	return true
end

-- One page of a slot. Where the next one begins, or nil; and the size of that:
-- of a lane that is passed over, the rest of a page is read for nothing.
local function drain_page(of_tick, at, size, share)
	local bucket = bucket_key(of_tick % slots)
	local page = sure("ZRANGEBYLEX", bucket, at, "+", "LIMIT", 0, size)
	local found = {lanes = {}, dues = {}}
	local gone, over, passed = {}, nil, 0
	for _, member in ipairs(page) do
		if over and sub(member, 1, #over + 1) == over .. "\0" then
			passed = passed + 1
		else
			local leaves
			leaves, over = visit(member, of_tick, share, found)
			gone[#gone + 1] = leaves and member or nil
			if stopped then
				break
			end
		end
	end
	deliver(found, of_tick % slots)
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

-- What is due in the slot of a tick, up to a share of each lane. The next pump
-- goes on behind the lane in which this one was stopped.
local function drain(of_tick, at, share)
	local size = PAGE
	while at and not stopped do
		if seen >= SEEN_MAX then
			stopped = format("%.0f %s", of_tick,
				match(at, "^.([A-Za-z0-9._+,-]*)"))
			left[of_tick] = left[of_tick] or sub(at, 1, 1) == "("
			break
		end
		at, size = drain_page(of_tick, at, size, share)
	end
end

-- The pass that the last pump has begun, or one that begins now: its last tick,
-- the first in which something is left, and where it goes on.
local function read_turn(last)
	local final, kept, of_tick, lane = match(last_turn or "",
		"^(%d+) (%S+) (%d+) ([A-Za-z0-9._+,-]*)$")
	final, kept = tonumber(final), tonumber(kept)
	of_tick = tonumber(of_tick)
	if of_tick and cursor <= (kept or of_tick) and
		(kept or of_tick) <= of_tick and of_tick <= final and
		final <= last then
		return final, kept, of_tick, behind(lane)
	end
	return min(last, cursor + TICKS_MAX - 1), nil, cursor, "-"
end

-- Each lane gets its share. The first tick in which something is left.
local function give_shares(final, kept, first, at)
	local share = max(1, floor(limit / SHARE))
	for each = first, final do
		drain(each, each == first and at or "-", share)
		kept = kept or left[each] and each
		if stopped then
			break
		end
	end
	return kept or nil
end

-- The rest of the limit. In ticks up to known, something may be left or not.
local function give_rest(final, kept, known)
	for each = kept, final do
		if each <= known or left[each] then
			drain(each, "-", limit)
		end
		if stopped then
			return each
		end
	end
	return final
end

-- The rest of the limit, when a pass has read enough for one pump: for what is
-- left in ticks before the one where it stopped. So a pump moves its limit also
-- when it is late by more ticks than one pump can see. The first tick in which
-- something is left, or that where it stopped.
local function give_oldest(kept, goes_on)
	local last = tonumber(match(goes_on, "^%d+"))
	stopped, seen = nil, 0
	while kept < last do
		drain(kept, "-", limit)
		if stopped then
			break
		end
		kept = kept + 1
	end
	stopped = goes_on
	return kept
end

-- Where the next pump goes on, or ""; and the first tick in which something is
-- left, if there is one.
local function pass(final, kept, first, at)
	kept = give_shares(final, kept, first, at)
	if stopped then
		local goes_on = stopped
		if kept and looked < limit then
			kept = give_oldest(kept, goes_on)
		end
		return format("%.0f %s %s", final,
			kept and format("%.0f", kept) or "-", goes_on), kept
	end
	cursor = kept and give_rest(final, kept, first) or final
	return "", kept
end

-- Where the next pump goes on, and whether it has something to do at once.
local function turn()
	local last = floor(now / tick)
	cursor = max(cursor, last - slots + 1)
	local final, kept, first, at = read_turn(last)
	local goes_on = pass(final, kept, first, at)
	local more = stopped ~= nil
	if at ~= "-" and not stopped then
		-- Of what has become due since that pass began; if there is too
		-- much to look at, the next pump need not be at once.
		final = min(last, cursor + TICKS_MAX - 1)
		goes_on, kept = pass(final, nil, cursor, "-")
		more = stopped and (kept or looked >= limit)
	end
	for lane, ids in pairs(entries) do
		append(lane, unpack(ids))
	end
	return goes_on, more or final < last
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
	local inflight = inflight_key()
	local leases = sure("ZRANGE", inflight, 0, LEASES_MAX - 1, "WITHSCORES")
	for i = 1, #leases, 2 do
		call("ZADD", inflight, leases[i + 1] + by, leases[i])
	end
end

-- Until the leap has lasted, or is over. Nobody has looked for longer than
-- LEAP_MAX, or it has leapt again: it counts from anew.
local function weigh_leap()
	local seen = tonumber(call("HGET", KEYS[1], "seen") or "") or 0
	if not in_doubt then
		doubted = 0
	elseif doubted == 0 or real < seen or real - seen > LEAP_MAX then
		doubted = real
	elseif real - doubted >= LEAP_HOLD then
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

-- Of the queues that got something, those whose hint is not written here.
local function notify_queues(notifies)
	local names, done = {}, {}
	for lane in pairs(entries) do
		local queue = match(lane, "^[^+,]+")
		if not done[queue] then
			done[queue] = true
			if not notifies or push_hint(queue, shard) then
				names[#names + 1] = queue
			end
		end
	end
	table.sort(names)
	return names
end

local refused = open() or #ARGV ~= 5 and expect(4)
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
if #ARGV == 5 and ARGV[5] ~= "notify" then
	return refuse_argument(3, "notify")
end
refused = admit("GETRANGE", "LTRIM", "MGET", "PEXPIRE", "RPUSH", "SET", "ZADD",
	"ZRANGE", "ZRANGEBYLEX", "ZREM")
if refused then
	return refused
end
if expected and expected ~= version then
	return {-1, 0, version}
end
if in_doubt or doubted ~= 0 then
	weigh_leap()
end
local was_cursor, was_next = cursor, next_poll
local goes_on, more = turn()
local looked_for = more and now or find_next()
if next_schedule > now then
	looked_for = min(looked_for, next_schedule)
end
if cursor ~= was_cursor or changed then
	version = version + 1
end
next_poll = looked_for
if cursor ~= was_cursor or changed or next_poll ~= was_next or
	goes_on ~= last_turn then
	commit("turn", goes_on)
end
local names = notify_queues(ARGV[5])
return {moved, more and 0 or wait_until(looked_for), version, cursor, now,
	more and 1 or 0, ahead, in_doubt and real - now or 0, names,
	next_schedule <= now and 1 or 0}
