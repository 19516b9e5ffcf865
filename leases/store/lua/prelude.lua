-- Begins every script on one subscription. KEYS[1] is the subscription's shard hash, KEYS[2] its group's zset "due"; every other key is in the
-- same hash slot and is built from these two. Numbers are doubles: offsets are exact up to 2^53 and printed with %d, never with '..'.
local call, fmt, match = redis.call, string.format, string.match
if redis.replicate_commands then redis.replicate_commands() end -- Redis 6: the effects are replicated, so TIME may decide
local H = KEYS[1]
local B, G = string.sub(H, 1, -2), string.sub(KEYS[2], 1, -4)
local TIME = call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
-- A finished block stays in X below zero: the oldest first, and before all live ones.
local FINISHED = 1e14
-- frontier cursor inflight inflightA pre delayed ahead seq dirty blocks, and the rest that the fast paths hand through
local HOT = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (.*)$'
