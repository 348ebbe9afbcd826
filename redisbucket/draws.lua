-- draws.lua executes draws of many buckets in one call, because an EVALSHA alone costs as much as a draw. Go
-- puts draw.lua before draws.lua, as the body of the function draw(KEYS, ARGV).
--
-- KEYS are the Redis keys of the buckets. ARGV[1] and ARGV[2] are those of lease.lua, for all buckets.
-- ARGV[3] has a request of 78 bytes for each bucket. The reply has for each bucket the reply of draw.lua, or
-- nil if the bucket is unchanged and needs a call of its own. If ARGV[4] is present, the call draws nothing,
-- and replies the number of buckets that exist.

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
