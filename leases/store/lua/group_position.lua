-- Notes how far a group's members have polled, unless another generation has begun. KEYS: the group's hash, its positions. ARGV: generation, time to
-- live in ms, then field and value of each.
if redis.call('HGET', KEYS[1], 'g') ~= ARGV[1] then return 'ST' end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 'OK'
