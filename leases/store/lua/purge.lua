-- Removes every piece of a shard but its own record.
local function purge(p)
  for _, nonce in ipairs(call('HKEYS', B .. 'L:' .. p)) do call('ZREM', B .. 'X', p .. ':' .. nonce) end
  for _, o in ipairs(call('HKEYS', B .. 'P:' .. p)) do
    call('ZREM', B .. 'D', p .. ':' .. o)
    call('ZREM', B .. 'C', p .. ':' .. o)
  end
  for _, pair in ipairs(call('ZRANGE', B .. 'FQ', 0, -1)) do
    if match(pair, '^%d+') == p then
      call('DEL', B .. 'FW:' .. pair)
      call('ZREM', B .. 'FQ', pair)
    end
  end
  for _, pair in ipairs(call('HKEYS', B .. 'F')) do
    if match(pair, '^%d+') == p then call('HDEL', B .. 'F', pair) end
  end
  for _, kind in ipairs({'L', 'P', 'O', 'Y', 'B', 'J', 'A', 'K', 'KO', 'W'}) do call('DEL', B .. kind .. ':' .. p) end
  call('ZREM', B .. 'OP', p)
  call('ZREM', B .. 'S', p)
end
