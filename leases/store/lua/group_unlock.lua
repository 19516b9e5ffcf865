-- Ends a lock that the caller still has. KEYS[1] is the lock, ARGV[1] its holder.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 'OK'
