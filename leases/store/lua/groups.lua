-- Subscriptions of one group. KEYS[1] is the group's zset; ARGV[1] says how long ago they are due, dirty or were last touched, in ms.
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
return table.concat(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, 10000), ' ')
