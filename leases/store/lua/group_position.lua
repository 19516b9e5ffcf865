-- Notes how far a group's members have polled, unless another generation has begun, or another poll has noted something since. KEYS: the group's hash,
-- its positions. ARGV: generation, time to live in ms, then of each partition its field, what the caller has found there ('' = nothing), the new value,
-- and 1 when the poll has read from it, 0 when it may as well stay as it is. Every value is somebody's own: a call that comes twice has done its work.
if redis.call('HGET', KEYS[1], 'g') ~= ARGV[1] then return 'ST' end
local had, done, read = {}, 0, 0
for i = 3, #ARGV, 4 do
  local v = redis.call('HGET', KEYS[2], ARGV[i]) or ''
  had[i] = v
  if ARGV[i + 3] == '1' then
    read = read + 1
    if v == ARGV[i + 2] then done = done + 1
    elseif v ~= ARGV[i + 1] then return 'MV' end
  end
end
if read > 0 and done == read then return 'OK' end
for i = 3, #ARGV, 4 do
  if had[i] == ARGV[i + 1] then redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2]) end
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 'OK'
