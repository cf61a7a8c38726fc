#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- queues [NAME...]: now, and for each {queue, entries, due, paused}; due is of
-- the oldest entry, 0 if there is none; paused is 1 or 0. Without names: of
-- up to 64 queues, those with the oldest entries as far as the janitor knows,
-- and if there is room others that are paused; and before them whether these
-- are all.

local NAMES_MAX = 64

local function describe(queue, since)
	local entries = try("LLEN", queue_key(queue))
	if is_foreign(entries) or entries == 0 then
		return {queue, 0, 0, is_paused(queue) and 1 or 0}
	end
	return {queue, entries, oldest_in(queue) or since,
		is_paused(queue) and 1 or 0}
end

-- The first of a set of queues, with their times; one more than are told.
local function read_set(name)
	local found = try("ZRANGE", prefix .. name, 0, NAMES_MAX, "WITHSCORES")
	return is_foreign(found) and {} or found
end

local function find_queues()
	local results, told, all = {}, {}, 1
	for _, set in ipairs({":queues", ":paused"}) do
		local found = read_set(set)
		for i = 1, #found, 2 do
			local queue = found[i]
			if not told[queue] and #results == NAMES_MAX then
				all = 0
			elseif not told[queue] then
				told[queue] = true
				results[#results + 1] = describe(queue,
					tonumber(found[i + 1]))
			end
		end
	end
	return results, all
end

local refused = open()
if refused then
	return refused
end
if #ARGV > 2 + NAMES_MAX then
	return refuse_argument(0, "the number of arguments")
end
for i = 3, #ARGV do
	if not is_name(ARGV[i]) then
		return refuse_argument(i - 2, "queue")
	end
end
refused = check_clocks()
if refused then
	return refused
end
if #ARGV == 2 then
	local results, all = find_queues()
	return {now, all, unpack(results)}
end
local results = {}
for i = 3, #ARGV do
	results[i - 2] = describe(ARGV[i], now)
end
return {now, 1, unpack(results)}
