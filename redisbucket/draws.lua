-- draws.lua: draws of many buckets of one server in one call, because an EVALSHA alone costs as much as a
-- draw. Go puts draw.lua before draws.lua, as the body of the function draw(KEYS, ARGV).
--
-- KEYS     the Redis keys of the buckets.
-- ARGV[1], ARGV[2]  as in lease.lua, for all buckets.
-- ARGV[3]  the requests, of 78 bytes each.
-- ARGV[4]  if present, no draw is made, and the reply is the number of buckets that exist.
--
-- Reply: for each bucket the reply of draw.lua, or nil for an unchanged bucket that needs its own call.

if ARGV[4] then
  local found = 0
  for i = 1, #KEYS do
    if redis.call('GET', KEYS[i]) then found = found + 1 end
  end
  return found
end

local requests, clock, replies, key = ARGV[3], ARGV[2], {}, {}
if #requests ~= 78 * #KEYS then return {'invalid', 'the length is not that of a request for each key'} end
if clock == '' then
  clock = redis.call('TIME')
  clock = clock[1] * 1000000 + clock[2]
end
local argv = {ARGV[1], clock}
for i = 1, #KEYS do
  key[1], argv[3] = KEYS[i], string.sub(requests, 78 * i - 77, 78 * i)
  replies[i] = draw(key, argv) or false
end
return replies
