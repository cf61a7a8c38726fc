-- SPDX-License-Identifier: Apache-2.0
--
-- common.lua: what the scripts share. For the engine it is the begin of a
-- library of functions, and each script is a function behind it: ../embed puts
-- them together. So what stands here is made once, when the library is loaded,
-- and not for each call; what belongs to a call is in variables that enter()
-- sets. While it is loaded, the engine has none of Lua's libraries.
--
-- A script goes through these steps, in this order:
--
--   open()      reads the clock and meta, compares the identity: TRYAGAIN,
--               ENOSPACE
--   its own     checks all arguments: EARG
--   admit()     compares the clocks, looks for a pause, asks for the rights to
--               the commands: ESKEW, EPAUSED, NOPERM
--   its own     reads, decides, writes. From here on nothing may raise an
--               error, for what was written before it would stay: what can
--               fail because of a foreign key goes through sure() or try()
--   commit()    writes clock, next, and the counters; publishes
--
-- ../DESIGN says what the keys and the fields mean.

local KEYS, ARGV
local call, try
local floor, max, min
local find, format, match, sub

local FORMAT, HEADER = 2, 56
local LAYOUT = "<BBHHHI4I4I8I8I8I8I8"
local PENDING, DELIVERED, RUNNING = 1, 2, 3
local SUCCEEDED, FAILED, CANCELLED, QUARANTINED = 4, 5, 6, 7
local HAS_ENTRY = 16 -- with a state: see withdraw()
-- The format of a record with options, and of a shard that has had one.
local FORMAT_OPTIONS, OPTIONS = 3, 29
-- That of a shard that has had a priority, or a limit of a queue.
local FORMAT_LANES = 4
local OPTIONS_LAYOUT = "<I8I8I8I4B"

local HIGH, LOW = 1, 2 -- priorities; normal is nil, and 0 in a record
local MARKS = {"+", ","} -- of their lanes: no queue's name has one

local WHOLE_MAX = 9007199254740992 -- 2^53: from here on doubles have gaps
local DELAY_MAX = 315360000000 -- 10 years
local DUE_MAX = 281474976710655 -- 2^48 - 1: what a member of a bucket can say
local NEVER = WHOLE_MAX -- as a time
local DAY = 86400000
local FIRST, FACTOR, MOST = 1000, 2000, 600000 -- of retries: see back_off()
local FACTOR_MIN, FACTOR_MAX = 1000, 1000000 -- thousandths
local QUEUE_MAX, ID_MAX = 64, 64
local HEAD_MAX = HEADER + QUEUE_MAX + OPTIONS -- of a record: before the payload
local SCHEDULE_MAX = 43 -- and @2027-01-31T00:00:00Z make an id
local PAYLOAD_MAX = 65536
local TRIES_MAX = 1000
local BATCH_MAX = 512
local BYTES_MAX = 1048576 -- of payloads in a call: they delay all others
local GENERATION_MAX = 4294967295
local TICKS_MAX = 1000 -- that one call looks at
local WAIT_MAX = 1000 -- ms until the next poll, at most
local LANES_MAX = 64 -- of a bucket, whose first members are looked at
local LEAP_MAX = 60000 -- a leap of the clock by more is doubted
local LEAP_HOLD = 10000 -- until it has lasted for so long
local TOGETHER = 16 -- records that are read at once: a MiB at most
local LONG = 4096 -- bytes of a record
local SHORT = 1000 -- a queue with more entries is not searched for one
local HINTS_MAX, HINT_KEPT = 16, 60000 -- of a queue; ms

-- Of a call. open() sets all that enter() does not.

-- What stands behind a script's own arguments: see ../DESIGN.
local identity -- of the space that was opened; "": any
local trusted_time -- of the caller: it has come for sure; "": none

local prefix, space, shard -- of the keys; of the channels
local real -- the engine's clock, rounded down
local now, now_up -- never fall; rounded down and up
local base, base_up -- the same, but real while that is doubted
local ahead -- for so many ms time stands still, until real has caught up
local in_doubt -- real has leapt, and now stands still
local doubted -- since when, by real; 0: it is not
local cursor, version, next_poll, tick, slots, retention
local paused, resumed, scan
local pending, delivered -- tasks in buckets, and in queues
local fence -- the last one of the shard
local next_schedule -- when a schedule is to be looked at; NEVER: there is none
local last_turn -- where the last pump stopped
local shard_format -- an older version is refused
local earliest -- due time of what was put into the wheel
local are_long -- a record was: see read_headers()
local changed -- something that commit() must tell
local delta -- of the counters

-- The first step of each call; an earlier one may have ended anywhere.
local function enter(keys, arguments)
	call, try = redis.call, redis.pcall
	floor, max, min = math.floor, math.max, math.min
	find, format, match, sub =
		string.find, string.format, string.match, string.sub
	KEYS, ARGV = keys, arguments
	identity = table.remove(ARGV)
	trusted_time = table.remove(ARGV)
	earliest, are_long, changed, delta = nil, false, false, {}
end

local function register(name, flags, script)
	redis.register_function({
		function_name = name,
		flags = flags,
		callback = function(keys, arguments)
			enter(keys, arguments)
			return script()
		end,
	})
end

local function refuse(text)
	return {err = text}
end

local function refuse_argument(which, text)
	return {err = format("EARG %d %s", which, text)}
end

-- How many arguments there must be.
local function expect(total)
	if #ARGV ~= total then
		return refuse_argument(0, "the number of arguments")
	end
	return nil
end

-- A decimal string without sign, point, exponent, space; or nil.
local function whole(text, low, high)
	if #text > 16 or not find(text, "^[0-9]+$") then
		return nil
	end
	local value = tonumber(text)
	if value < low or value > high then
		return nil
	end
	return value
end

local function is_id(text)
	return #text >= 1 and #text <= ID_MAX
end

local function is_name(text)
	return #text >= 1 and #text <= QUEUE_MAX and
		not find(text, "[^A-Za-z0-9._%-]")
end

-- Milliseconds, rounded down and up.
local function read_clock()
	local time = call("TIME")
	local ms = time[1] * 1000 + time[2] / 1000
	return floor(ms), -floor(-ms)
end

-- No fence is used twice: it is greater than the last one, which meta has; and
-- if that is gone with the shard's data, than those of before, by the clock.
local function read_fence(last)
	return max(whole(last or "", 0, WHOLE_MAX) or 0, now * 1000)
end

local function name_keys()
	prefix, space, shard = match(KEYS[1] or "", "^({(.+):([0-9]+)}):meta$")
	return #KEYS == 1 and prefix ~= nil
end

-- While a slot of a cluster is being moved, its keys are on two nodes, and a
-- script stops at the first one that it misses; on the other node it would take
-- it for one that never was. The engine then refuses a command with two keys
-- that are nowhere, on either node.
local function look_whether_moving()
	local reply = try("EXISTS", prefix .. ":move:1", prefix .. ":move:2")
	if type(reply) ~= "table" then
		return nil
	end
	return find(reply.err, "non local key", 1, true) and
		refuse("TRYAGAIN the shard is being moved") or reply
end

-- A leap of the clock since the last write in this shard by more than LEAP_MAX
-- is believed only if somebody knows that so much time has gone by; until then
-- now stands still. What counts from now on counts from base: nothing is early,
-- whatever is found out.
local function judge_time(clock, up)
	base, base_up = max(real, clock), max(up, clock)
	now, now_up = base, base_up
	ahead = max(clock - real, 0)
	in_doubt = real - max(clock, tonumber(trusted_time) or 0) > LEAP_MAX
	if in_doubt then
		now, now_up = clock, clock
	end
end

-- The fields that most scripts need come first in meta: it is a list in which
-- the engine looks from the front. meta_alone: the script touches nothing else.
local function open(meta_alone)
	if not name_keys() then
		return refuse_argument(0, "the key is not {SPACE:SHARD}:meta")
	end
	local refused = not meta_alone and look_whether_moving()
	if refused then
		return refused
	end
	local meta = try("HMGET", KEYS[1], "format", "clock", "cursor",
		"version", "next", "tick", "slots", "retention", "paused",
		"resumed", "scan", "pending", "delivered", "fence", "turn",
		"identity", "doubted", "schedule")
	if meta.err then
		return meta
	end
	if not meta[1] then
		return refuse("ENOSPACE there is no such space or shard")
	end
	if identity ~= "" and identity ~= meta[16] then
		return refuse("ENOSPACE the space was made anew since")
	end
	for i = 1, 13 do
		meta[i] = tonumber(meta[i] or "")
		if not meta[i] then
			return refuse("ESHAPE meta cannot be read")
		end
	end
	shard_format = meta[1]
	if shard_format < FORMAT or shard_format > FORMAT_LANES then
		return refuse(format("ESHAPE the space has format %.0f, " ..
			"this program up to %d: drain it with the version " ..
			"that made it, until hwtctl stat has nothing " ..
			"pending, delivered, running, dead or quarantined; " ..
			"then " ..
			"delete its keys, {%s:*}:*", shard_format,
			FORMAT_LANES, space))
	end
	local clock
	clock, cursor, version, next_poll = meta[2], meta[3], meta[4], meta[5]
	tick, slots, retention = meta[6], meta[7], meta[8]
	paused, resumed, scan = meta[9], meta[10], meta[11]
	pending, delivered = meta[12], meta[13]
	local up
	real, up = read_clock()
	judge_time(clock, up)
	doubted = whole(meta[17] or "", 0, WHOLE_MAX) or 0
	fence, last_turn = read_fence(meta[14]), meta[15]
	next_schedule = whole(meta[18] or "", 0, WHOLE_MAX) or NEVER
	return nil
end

-- Compares the caller's clock with the engine's.
local function check_clocks()
	local theirs = ARGV[1] == "" and 0 or whole(ARGV[1], 0, WHOLE_MAX)
	if not theirs then
		return refuse_argument(0, "the caller's clock")
	end
	if ARGV[2] == "" then
		return nil
	end
	local skew = whole(ARGV[2], 0, WHOLE_MAX)
	if not skew or ARGV[1] == "" then
		return refuse_argument(0, "the skew")
	end
	local apart = theirs - real
	if apart > skew or -apart > skew then
		return refuse(format("ESKEW the caller's clock is %.0f ms %s",
			math.abs(apart), apart > 0 and "ahead" or "behind"))
	end
	return nil
end

-- The arguments from the given one on, each of the same kind; and the clocks.
local function check_each(from, is_sound, what)
	for i = from, #ARGV do
		if not is_sound(ARGV[i]) then
			return refuse_argument(i - 2, what)
		end
	end
	return check_clocks()
end

-- A script that the engine stops at a command to which its user has no right
-- has done the half of it, and that stays. So each asks before it writes.
local function check_rights(commands)
	for _, command in ipairs(commands) do
		if not redis.acl_check_cmd(command, KEYS[1], KEYS[1]) then
			return refuse("NOPERM the user has no right to " ..
				command)
		end
	end
	return nil
end

-- The commands are those of the script that may come after its first write, but
-- for what commit() and sure() call.
local function admit(...)
	local refused = check_clocks()
	if refused then
		return refused
	end
	if paused ~= 0 then
		return refuse("EPAUSED the shard is paused")
	end
	return check_rights({"HSET", "HINCRBY", "RENAME", ...})
end

local function count(name, by)
	delta[name] = (delta[name] or 0) + by
	changed = true
end

-- How many tasks went into buckets, and into queues.
local function count_waiting(into_buckets, into_queues)
	pending = pending + into_buckets
	delivered = delivered + into_queues
	changed = true
end

-- Whether a reply says that the key is foreign. Any other error is the engine's
-- (a slot that is being moved, say) and ends the script.
local function is_foreign(reply)
	if type(reply) ~= "table" or not reply.err then
		return false
	end
	if find(reply.err, "WRONGTYPE", 1, true) then
		return true
	end
	error(reply)
end

local function set_aside(key)
	call("RENAME", key, prefix .. ":aside" .. sub(key, #prefix + 1))
end

-- A foreign key that is where one of ours belongs is set aside.
local function sure(command, key, ...)
	local reply = try(command, key, ...)
	if is_foreign(reply) then
		set_aside(key)
		return call(command, key, ...)
	end
	return reply
end

local function record_key(id)
	return prefix .. ":r:" .. id
end

-- Running ids, by the ends of their leases.
local function inflight_key()
	return prefix .. ":fly"
end

local function pack(task)
	local state = task.state + (task.has_entry and HAS_ENTRY or 0)
	return struct.pack(LAYOUT, task.options and FORMAT_OPTIONS or FORMAT,
		state, task.attempts, task.max_attempts, #task.queue,
		task.generation, task.slot, task.due, task.doubt,
		task.doubt_before, task.fence, now)
end

-- A record before its payload.
local function head(task)
	return pack(task) .. task.queue .. (task.options or "")
end

local function head_size(task)
	return HEADER + #task.queue + (task.options and OPTIONS or 0)
end

-- What a task says of itself; a record without options says none of it.
local function set_options(task)
	task.options = struct.pack(OPTIONS_LAYOUT, task.expires or 0,
		task.first or 0, task.most or 0, task.factor or 0,
		task.priority or 0)
end

local function are_retries(first, factor, most)
	return first >= 1 and first <= most and most <= DELAY_MAX and
		factor >= FACTOR_MIN and factor <= FACTOR_MAX
end

-- Whether the options can be read.
local function get_options(task, text)
	if #text ~= OPTIONS then
		return false
	end
	local expires, first, most, factor, priority =
		struct.unpack(OPTIONS_LAYOUT, text)
	task.options = text
	task.priority = priority > 0 and priority or nil
	task.expires = expires > 0 and expires or nil
	if first > 0 then
		task.first, task.most, task.factor = first, most, factor
	end
	return expires <= DUE_MAX and priority <= LOW and
		(first == 0 or are_retries(first, factor, most))
end

-- Whether an attempt that begins now begins too late.
local function is_expired(task)
	return task.expires and now_up > task.expires
end

local function is_sound(task, length)
	if task.state == QUARANTINED then
		return true
	end
	return task.state >= PENDING and task.state < QUARANTINED and
		task.state ~= DELIVERED and
		is_name(task.queue) and #task.queue == length and
		task.generation >= 1 and task.slot < slots and
		task.due <= DUE_MAX and task.fence <= WHOLE_MAX and
		task.attempts <= task.max_attempts and
		(task.state >= RUNNING or
			task.attempts < task.max_attempts)
end

-- Text is the record, or its first HEAD_MAX bytes.
local function unpack_record(text)
	if #text < HEADER then
		return nil
	end
	local task = {}
	local kind, length
	kind, task.state, task.attempts, task.max_attempts, length,
		task.generation, task.slot, task.due, task.doubt,
		task.doubt_before, task.fence = struct.unpack(LAYOUT, text)
	if kind ~= FORMAT and kind ~= FORMAT_OPTIONS then
		return nil
	end
	if task.state >= HAS_ENTRY then
		task.state, task.has_entry = task.state - HAS_ENTRY, true
	end
	task.queue = sub(text, HEADER + 1, HEADER + length)
	if not is_sound(task, length) or kind == FORMAT_OPTIONS and
		not get_options(task, sub(text, HEADER + length + 1,
			HEADER + length + OPTIONS)) then
		return nil
	end
	return task
end

-- The task, and the text that was read. If there is no record: nil, "". If it
-- cannot be read: nil, nil.
local function load(id, all)
	local text = try("GETRANGE", record_key(id), 0,
		all and -1 or HEAD_MAX - 1)
	if is_foreign(text) then
		return nil, nil
	end
	if text == "" then
		return nil, ""
	end
	local task = unpack_record(text)
	return task, task and text
end

-- The records of ids are read together, in their order, until one of them is
-- long: from then on as much of each as is needed. Answers a function of an
-- id's place: the record, or its begin, or something false.
local function read_headers(ids)
	local texts, done = {}, 0
	return function(i)
		if i > done and are_long then
			local text = try("GETRANGE", record_key(ids[i]), 0,
				HEAD_MAX - 1)
			return not is_foreign(text) and text
		end
		if i > done then
			local keys = {}
			for at = i, min(i + TOGETHER - 1, #ids) do
				keys[#keys + 1] = record_key(ids[at])
			end
			for _, text in ipairs(call("MGET", unpack(keys))) do
				done = done + 1
				texts[done] = text
				if text and #text > LONG then
					are_long = true
				end
			end
		end
		return texts[i]
	end
end

local function save(id, task)
	call("SETRANGE", record_key(id), 0, pack(task))
end

local function bucket_key(slot)
	return prefix .. ":b:" .. slot
end

-- A queue has three lanes, one for each priority: each is a list, and has a
-- place of its own in buckets. That of normal priority has the queue's name.
local function lane_of(task)
	return task.queue .. (MARKS[task.priority] or "")
end

-- In the order in which take begins what is in them.
local function lanes_of(queue)
	if shard_format < FORMAT_LANES then
		return {queue}
	end
	return {queue .. MARKS[HIGH], queue, queue .. MARKS[LOW]}
end

local function lane_key(lane)
	return prefix .. ":q:" .. lane
end

local function count_entries(queue)
	local count = 0
	for _, lane in ipairs(lanes_of(queue)) do
		local length = try("LLEN", lane_key(lane))
		count = count + (is_foreign(length) and 0 or length)
	end
	return count
end

-- Entries for a lane, whose queue is then among those that have some, by a time
-- that is not after now. The janitor makes that the due time of its oldest
-- entry, and takes out those that are empty: so the queues with the oldest
-- entries come to stand first, though no take touches this.
local function append(lane, ...)
	sure("RPUSH", lane_key(lane), ...)
	sure("ZADD", prefix .. ":queues", "NX", now, match(lane, "^[^+,]+"))
end

-- The list of hints for those that wait for a queue: see notify.lua. In a
-- cluster it may be on another node.
local function hints_key(queue)
	return "{" .. space .. "}:k:" .. queue
end

-- What is wrong with that key; or nil.
local function push_hint(queue, shards)
	local key = hints_key(queue)
	local length = try("RPUSH", key, shards)
	if type(length) == "table" then
		return length
	end
	if length > HINTS_MAX then
		try("LTRIM", key, -HINTS_MAX, -1)
	end
	try("PEXPIRE", key, HINT_KEPT)
	return nil
end

-- Since when take is to begin nothing of a queue; or something false.
local function paused_since(queue)
	local since = try("ZSCORE", prefix .. ":paused", queue)
	return not is_foreign(since) and tonumber(since or "")
end

-- The limits of a queue, which are kept for each shard: see queue.lua.
local function limits_key(queue)
	return prefix .. ":l:" .. queue
end

-- The ids that run, of a queue that has a limit to how many.
local function places_key(queue)
	return prefix .. ":f:" .. queue
end

-- Attempts that have ended give their places back. How many they had.
local function free_places(queue, ...)
	return shard_format >= FORMAT_LANES and
		sure("ZREM", places_key(queue), ...) or 0
end

-- How many may run in this shard; nil: any number.
local function places_of(queue)
	if shard_format < FORMAT_LANES then
		return nil
	end
	local places = try("HGET", limits_key(queue), "places")
	return not is_foreign(places) and
		whole(places or "", 1, WHOLE_MAX) or nil
end

-- A limit keeps entries waiting, and held is when one was last seen to: that is
-- written once a second.
local function note_held(queue, held)
	if now - (tonumber(held or "") or 0) >= 1000 then
		sure("HSET", limits_key(queue), "held", now)
	end
end

-- When the oldest entry of a lane that counts was due; nil: not among the first
-- ones.
local function oldest_in_lane(lane, queue)
	local ids = try("LRANGE", lane_key(lane), 0, 15)
	for _, id in ipairs(is_foreign(ids) and {} or ids) do
		local task = load(id)
		if task and task.state == PENDING and task.due <= now and
			task.queue == queue then
			return task.due
		end
	end
	return nil
end

local function oldest_in(queue)
	local found
	for _, lane in ipairs(lanes_of(queue)) do
		local due = oldest_in_lane(lane, queue)
		found = due and min(found or due, due) or found
	end
	return found
end

-- A delay of 0 is due at once; others count from the next whole millisecond, as
-- otherwise they could be short of a part of one.
local function due_after(delay)
	return delay == 0 and base or base_up + delay
end

-- "in" or "at", and a time: the due time, or nil.
local function read_due(mode, text)
	if mode == "in" then
		local delay = whole(text, 0, DELAY_MAX)
		return delay and due_after(delay)
	end
	return mode == "at" and whole(text, 0, base + DELAY_MAX) or nil
end

-- A tick that is drained is not looked at again for a whole rotation, nor the
-- part of one that a pass has seen: what is due already goes into that of now,
-- which no pump has left behind.
local function slot_of(due)
	return floor(max(due, now) / tick) % slots
end

-- A member of a bucket: lane, a zero byte, the due time, id. All of them have
-- the score 0, so the engine orders them by their bytes: what is due first in a
-- lane comes first, and the next lane is found without looking at the rest of
-- this one.
local function member_of(id, task)
	return lane_of(task) .. struct.pack(">BI6", 0, task.due) .. id
end

-- Lane, due time, id; nil if it is no member of ours.
local function read_member(member)
	local zero = find(member, "\0", 1, true)
	if not zero or zero == 1 or #member <= zero + 6 then
		return nil
	end
	return sub(member, 1, zero - 1), struct.unpack(">I6", member, zero + 1),
		sub(member, zero + 7)
end

-- Where the members of the next lane begin.
local function behind(lane)
	return "[" .. lane .. "\1"
end

-- When the first task of a slot is due; nil: it is empty. And whether all lanes
-- were looked at.
local function first_due(slot)
	local at, found = "-", nil
	for _ = 1, LANES_MAX do
		local page = try("ZRANGEBYLEX", bucket_key(slot), at, "+",
			"LIMIT", 0, 1)
		if is_foreign(page) or not page[1] then
			return found, true
		end
		local lane, due = read_member(page[1])
		found = lane and min(found or due, due) or found
		at = lane and behind(lane) or "(" .. page[1]
	end
	return found, false
end

-- Into the wheel. The caller writes the record.
local function place(id, task, due)
	task.state = PENDING
	task.due = due
	task.slot = slot_of(due)
	sure("ZADD", bucket_key(task.slot), 0, member_of(id, task))
	count_waiting(1, 0)
	earliest = min(earliest or due, due)
end

-- The next generation: it has all its attempts again.
local function renew(task)
	task.generation = task.generation + 1
	task.attempts = 0
	task.doubt, task.doubt_before = 0, 0
end

-- Whether a pending task is in its bucket still; it is in its queue otherwise.
local function is_in_bucket(id, task)
	local score = try("ZSCORE", bucket_key(task.slot), member_of(id, task))
	return score and not is_foreign(score)
end

-- As users see it: a task that is in its queue is delivered.
local function state_of(id, task)
	if not task then
		return QUARANTINED
	end
	return task.state == PENDING and task.due <= now and
		not is_in_bucket(id, task) and DELIVERED or task.state
end

-- The record as users see it, with the payload if all: of a pending one that is
-- in its queue: delivered; of one that cannot be read: one in quarantine,
-- without a queue; false: there is none.
local function show(id, all)
	local task, text = load(id, all)
	if text == "" then
		return false
	end
	if not task then
		return struct.pack(LAYOUT, FORMAT, QUARANTINED, 0, 0, 0, 0, 0,
			0, 0, 0, 0, 0)
	end
	text = all and text or sub(text, 1, head_size(task))
	return sub(text, 1, 1) .. string.char(state_of(id, task)) ..
		sub(text, 3)
end

-- However long the lanes are: an entry without a record would be a task that
-- was lost.
local function remove_entries(queue, id)
	for _, lane in ipairs(lanes_of(queue)) do
		sure("LREM", lane_key(lane), 0, id)
	end
end

-- Out of the wheel, or out of the queue. Its entry stays in a queue that is too
-- long to be searched; whoever takes it finds that nobody waits for it. The
-- record says so, until it goes. One that was left before may be in another
-- lane.
local function withdraw(id, task)
	if sure("ZREM", bucket_key(task.slot), member_of(id, task)) == 1 then
		count_waiting(-1, 0)
		return
	end
	count_waiting(0, -1)
	local lanes = task.has_entry and lanes_of(task.queue) or {lane_of(task)}
	task.has_entry = false
	for _, lane in ipairs(lanes) do
		if sure("LLEN", lane_key(lane)) > SHORT then
			task.has_entry = true
		else
			call("LREM", lane_key(lane), 0, id)
		end
	end
end

-- The end of a task that did not fail: the payload goes at once, the rest of
-- the record with its retention; but that of one with an entry in a queue stays
-- until the entry goes, for an entry without a record is a task that was lost.
local function conclude(id, task, state)
	task.state = state
	local text = head(task)
	if task.has_entry then
		call("SET", record_key(id), text)
	else
		call("SET", record_key(id), text, "PX", retention)
	end
	count(state == SUCCEEDED and "succeeded" or "cancelled", 1)
end

-- Why a task is a dead letter: the name of the worker, or "-", and what it said
-- after a space. There is none without a dead letter.
local function error_key(id)
	return prefix .. ":e:" .. id
end

-- A dead letter; said: its worker said so, and it did not run out of attempts.
local function bury(id, task, why, said)
	task.state = FAILED
	task.slot = said and 1 or 0
	save(id, task)
	if why ~= "" then
		call("SET", error_key(id), why)
	end
	sure("ZADD", prefix .. ":dead", now, id)
	count("failed", 1)
end

-- A task that is not to begin any more.
local function bury_expired(id, task)
	bury(id, task, "- expired", true)
end

-- The end of an attempt without an end of the task, which the caller takes out
-- of those in flight.
local function again(id, task, due, why)
	if task.attempts >= task.max_attempts then
		bury(id, task, why)
		return
	end
	place(id, task, due)
	save(id, task)
end

-- For how long a retry waits, if nobody says how long: full jitter, up to the
-- first delay, that times the factor, and so on to the most. A power that is
-- too large for a number is infinite, and the most is less.
local function back_off(task)
	local longest = (task.first or FIRST) *
		((task.factor or FACTOR) / 1000) ^ (task.attempts - 1)
	return floor(math.random() * min(longest, task.most or MOST))
end

-- An attempt that its worker has called nobody for, and whose lease has ended,
-- does not count, if it is one of the last two such: the record has their
-- fences. A task that is dead for lack of attempts has one again.
local function refund(id, attempt)
	local task = load(id)
	if not task or task.state > FAILED or task.state == SUCCEEDED then
		return false
	end
	if task.doubt == attempt then
		task.doubt, task.doubt_before = task.doubt_before, 0
	elseif task.doubt_before == attempt then
		task.doubt_before = 0
	else
		return false
	end
	task.attempts = max(task.attempts - 1, 0)
	count("given_back", 1)
	if task.state == FAILED and task.slot == 0 then
		sure("ZREM", prefix .. ":dead", id)
		call("UNLINK", error_key(id))
		place(id, task, now)
	end
	save(id, task)
	return true
end

-- An id without a record, or with one that cannot be read, goes out of the way,
-- to where somebody looks at it. The caller takes it from where it was.
local function quarantine(id)
	local _, text = load(id)
	if text == "" then
		call("SET", record_key(id), struct.pack(LAYOUT, FORMAT,
			QUARANTINED, 0, 0, 0, 0, 0, 0, 0, 0, 0, now))
	end
	sure("ZADD", prefix .. ":bad", now, id)
	changed = true
end

-- A schedule: see schedule.lua.
local function schedule_key(name)
	return prefix .. ":s:" .. name
end

-- Schedules by the time when each is to be looked at.
local function schedules_key()
	return prefix .. ":schedules"
end

-- The time of the last occurrence of a schedule that was added in this shard.
local function occurred_key(name)
	return prefix .. ":o:" .. name
end

-- NAME@TIME is the id of an occurrence.
local function is_schedule(name)
	return is_name(name) and #name <= SCHEDULE_MAX
end

-- A slot that a pump has not left behind yet: what is due may still be in it.
local function is_covered(slot)
	return (slot - cursor) % slots <= floor(now / tick) - cursor
end

-- The last step, with more fields of meta. A counter that something has made
-- unreadable stays so, and audit says it.
local function commit(...)
	if earliest and earliest < next_poll then
		next_poll = earliest
		-- A hint, which a user without rights to channels cannot give.
		try("PUBLISH", space .. ":due", shard)
	end
	call("HSET", KEYS[1], "clock", now, "cursor", cursor,
		"version", version, "next", next_poll, "pending", pending,
		"delivered", delivered, ...)
	for name, by in pairs(delta) do
		try("HINCRBY", KEYS[1], name, by)
	end
end

