-- draws.lua: draws of many buckets, KEYS, in one call: an EVALSHA alone costs as much as a draw. Go puts draw.lua
-- before it, as the body of the function draw(KEYS, ARGV). ARGV[1] and ARGV[2] are those of lease.lua, ARGV[3] has a
-- request of 78 bytes for each key. With an ARGV[4] no draw is made: the reply is how many of the buckets are there.
--
-- Reply: for each bucket that of draw.lua, or nil where it is left as it is, to be called alone.

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
