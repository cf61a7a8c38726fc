#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- list ids: of each its record without the payload, as get answers; nil: there
-- is none.

local IDS_MAX = 512

local refused = open()
if refused then
	return refused
end
if #ARGV > 2 + IDS_MAX then
	return refuse_argument(0, "the number of arguments")
end
refused = check_each(3, is_id, "id")
if refused then
	return refused
end
local results = {}
for i = 3, #ARGV do
	results[i - 2] = show(ARGV[i])
end
return results
