-- configure.lua: inspect, set, set if absent, or reset one bucket. common.lua and open.lua come before it, close.lua after.
--
-- KEYS, ARGV and units: common.lua. KEYS[1] is the bucket; there is no KEYS[2].
-- ARGV[4]  the operation: inspect, set, set-if-absent or reset
--
-- Reply: a flat array.
--   {'ok', exists, changed, ledger, activeWeight, epoch, counter, clock, ttl, configuration, level, next, ...}
--     flags 0 or 1, ledger in whole tokens, clock and ttl in microseconds, level and next as in lease.lua; a bucket that
--     does not exist answers {'ok', 0, 0}
--   {'invalid', why}, {'damaged', key, why}: nothing was written
--
-- Steps (docs/protocol.md section 4): 1 to 3, the operation and the clip are open.lua's, as for a lease call. An operation that
-- changes nothing writes nothing.

if not op then return {'invalid', 'no operation'} end
local frost = max(0, frozen - now)
local answer = {'ok', 1, changed and 1 or 0, ledger, active, epoch, counter, clock, ttl, c.text}
for k = 1, c.n do
  local whole = floor(c[k].level / c[k].unit)
  answer[9 + 2 * k], answer[10 + 2 * k] = whole, wait(c[k], whole + 1, frost)
end
if not changed then return answer end
local record, recordLife
keep = remember(c, keep, now, ttl, frost, base, width, held, weights)
