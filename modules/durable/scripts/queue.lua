#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- queue pause|resume name: from then on take begins nothing of the queue, or
-- does again. The set has when each was paused.

local refused = open() or expect(4)
if refused then
	return refused
end
if ARGV[3] ~= "pause" and ARGV[3] ~= "resume" then
	return refuse_argument(1, "pause or resume")
end
if not is_name(ARGV[4]) then
	return refuse_argument(2, "queue")
end
-- The first write is the only one that needs another right.
refused = admit()
if refused then
	return refused
end
local key = prefix .. ":paused"
local changes
if ARGV[3] == "pause" then
	changes = sure("ZADD", key, "NX", now, ARGV[4])
else
	changes = sure("ZREM", key, ARGV[4])
end
if changes == 1 then
	commit()
end
return 0
