-- configure.lua executes the operation ARGV[4] on one bucket (docs/protocol.md section 6.15). open.lua executes
-- steps 1 to 3 before, and change.lua changes the bucket. The reply is a flat array:
--   {'ok', exists, changed, ledger, activeWeight, epoch, counter, spent, denied, clock, ttl,
--     configuration, level, next, ...}
--           exists and changed are 0 or 1; level and next of each limit are those of lease.lua
--   {'ok', 0, 0}          there is no bucket
--   {'invalid', why}, {'damaged', key, why}, {'newer', key, layout}: nothing was written

if not op then return {'invalid', 'no operation'} end
local frost, record, recordLife = max(0, frozen - now), nil, nil
local owes, granted, flags, delay, retry, longest, last, target, told
if c.windows then c.windows.see(c, ledger, now, frozen) end
local answer = {'ok', 1, changed and 1 or 0, ledger, active, epoch, counter, spent, denied,
  clock, ttl, c.text}
headroom = 0
keep, longest, owes = remember(c, keep, now, ttl, frost, base, width, ring)
