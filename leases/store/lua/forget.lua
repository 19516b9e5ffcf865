-- Finished blocks are kept so that a repeated ack can be answered: ten minutes, and not more than 16,384 a subscription.
local KEEP_MS, KEEP = 600000, 16384
local function forget()
  local x = B .. 'X'
  local old = call('ZRANGEBYSCORE', x, '-inf', fmt('%d', now - KEEP_MS - FINISHED), 'LIMIT', 0, 1000)
  if #old < 1000 then
    local n = call('ZCOUNT', x, '-inf', '(0') - #old - KEEP
    if n > 0 then old = call('ZRANGE', x, 0, math.min(n + #old, 4000) - 1) end
  end
  for _, member in ipairs(old) do
    local p, nonce = match(member, '^(%d+):(.+)$')
    call('ZREM', x, member)
    call('HDEL', B .. 'L:' .. p, nonce)
  end
end
