#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- init shards slots tick level retention identity complete: makes the shard
-- unless it is there; with identity "" it must be there. complete "1": all
-- others are; "repair": this one was there before, and what is left of it may
-- be of any format. The level is not part of the shape.

local NAMES = {"shards", "slots", "tick", "level", "retention"}
local LOW = {1, 8, 1, 1, 1}
local HIGH = {1024, 1048576, 3600000, 3, DELAY_MAX}
local DEFAULT = {1, 0, 0, 2, 3600000} -- 0: see default_shape()
local BUCKETS, SLOTS_LEAST = 65536, 4096
local TICK, TICK_MOST = 10, 100 -- ms, of a shard alone; of many

-- Of all scripts: who opens a space learns at once what its user lacks. The
-- PUBLISH sends hints, but nothing depends on them.
local COMMANDS = {
	"BLPOP",
	"EXISTS", "GET", "GETRANGE", "HGET", "HGETALL", "HINCRBY", "HMGET",
	"HSET", "LLEN", "LPOS", "LRANGE", "LREM", "LTRIM", "MGET", "MSET",
	"PEXPIRE", "PTTL", "RENAME", "RPUSH", "SCAN", "SET", "SETRANGE", "TIME",
	"UNLINK", "ZADD", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYLEX",
	"ZRANGEBYSCORE", "ZREM", "ZREMRANGEBYSCORE", "ZSCORE"}

-- One key of each kind.
local KEYS_OF_US = {"meta", "move:1", "b:0", "r:x", "q:x", "t:x", "e:x",
	"fly", "dead", "bad", "queues", "paused", "limits", "l:x", "f:x",
	"schedules", "s:x", "o:x",
	"aside:r:x"}

local function check_keys()
	local of_space = "{" .. space .. "}:"
	local all = {of_space .. "hosts", of_space .. "k:x", of_space .. "p:x",
		of_space .. "aside:k:x"}
	for _, rest in ipairs(KEYS_OF_US) do
		all[#all + 1] = prefix .. ":" .. rest
	end
	for _, key in ipairs(all) do
		if not redis.acl_check_cmd("RENAME", key, key) then
			return refuse("NOPERM the user has no right to " .. key)
		end
	end
	return nil
end

local function read_shape()
	local shape = {}
	for i = 1, 5 do
		local text = ARGV[2 + i]
		if text ~= "" and text ~= "0" then
			shape[i] = whole(text, LOW[i], HIGH[i])
			if not shape[i] then
				return nil, refuse_argument(i, NAMES[i])
			end
		end
	end
	if shape[2] and bit.band(shape[2], shape[2] - 1) ~= 0 then
		return nil, refuse_argument(2, "slots: no power of two")
	end
	if tonumber(shard) >= (shape[1] or 1024) then
		return nil, refuse_argument(1, "the key's shard")
	end
	if not find(ARGV[8], "^[1-9][0-9]*$") and ARGV[8] ~= "" or
		#ARGV[8] > 20 then
		return nil, refuse_argument(6, "identity")
	end
	if ARGV[9] ~= "" and ARGV[9] ~= "1" and ARGV[9] ~= "repair" then
		return nil, refuse_argument(7, "complete")
	end
	return shape
end

local function compare(shape)
	local there = call("HMGET", KEYS[1], unpack(NAMES))
	for i = 1, 5 do
		there[i] = tonumber(there[i] or "")
		if not there[i] then
			return refuse("ESHAPE meta cannot be read")
		end
		if i ~= 4 and shape[i] and shape[i] ~= there[i] then
			return refuse(format("ESHAPE %s is %.0f, not %.0f",
				NAMES[i], there[i], shape[i]))
		end
	end
	if ARGV[9] == "1" then
		call("HSET", KEYS[1], "complete", 1)
	end
	local rest = call("HMGET", KEYS[1], "identity", "complete")
	there[6], there[7], there[8] = 0, rest[1], rest[2]
	return there
end

-- Whatever the number of shards, there are some 65536 buckets, and a bucket of
-- a loaded space has as many tasks.
local function default_shape(shards)
	local slots = BUCKETS
	while slots * shards > BUCKETS and slots > SLOTS_LEAST do
		slots = slots / 2
	end
	return slots, min(TICK * shards, TICK_MOST)
end

local function make(shape)
	for i = 1, 5 do
		shape[i] = shape[i] or DEFAULT[i]
	end
	local slots, ms = default_shape(shape[1])
	shape[2] = shape[2] > 0 and shape[2] or slots
	shape[3] = shape[3] > 0 and shape[3] or ms
	if tonumber(shard) >= shape[1] then
		return refuse_argument(1, "the key's shard")
	end
	local oldest = floor(real / shape[3])
	local kind = ARGV[9] == "repair" and FORMAT_LANES or FORMAT
	call("HSET", KEYS[1], "format", kind, "identity", ARGV[8],
		"clock", real, "cursor", oldest, "version", 1,
		"next", real + WAIT_MAX, "tick", shape[3],
		"slots", shape[2], "retention", shape[5],
		"paused", 0, "resumed", 0, "scan", 0, "pending", 0,
		"delivered", 0, "fence", 0, "turn", "", "added", 0, "begun", 0,
		"succeeded", 0, "retried", 0, "expired", 0, "failed", 0,
		"cancelled", 0, "dropped", 0, "missed", 0, "given_back", 0,
		"walk", 0, "shards", shape[1], "level", shape[4],
		"complete", 0, "doubted", 0, "seen", 0)
	shape[6], shape[7], shape[8] = 1, ARGV[8], "0"
	return shape
end

local refused = name_keys() and (check_rights(COMMANDS) or check_keys())
if refused then
	return refused
end
local missing = open(true)
if missing and not find(missing.err, "^ENOSPACE") then
	return missing
end
local shape
refused = expect(9)
if not refused then
	shape, refused = read_shape()
end
real = read_clock()
refused = refused or check_clocks()
if refused then
	return refused
end
if missing and (ARGV[8] == "" or identity ~= "") then
	return missing
end
if missing then
	return make(shape)
end
return compare(shape)
