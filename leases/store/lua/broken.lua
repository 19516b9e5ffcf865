-- Only in builds that may remove fences. Without the check of the nonce an ack settles its record whoever holds the lease, or none.
ackAnyway = function(s, from, ok, blocks, order)
  for k = 1, #ok do
    local o = from + k - 1
    if ok[k] == '0' and o >= s.f and o < s.c then
      local id = pad(o)
      ok[k] = '1'
      local x = pointer(s, id)
      if unowe(s, id, x) then
        if x then removePointer(s, id) end
        if not (x and x.det) then settleOne(s, id) end
        if keyed then unlock(s, id) end
      else
        local names = call('HKEYS', B .. 'L:' .. s.p)
        for _, nonce in ipairs(names) do
          local b = blocks[s.p .. ':' .. nonce]
          if b == nil then
            b = parseBlock(call('HGET', B .. 'L:' .. s.p, nonce))
            b.s, b.nonce = s, nonce
            blocks[s.p .. ':' .. nonce] = b
            order[#order + 1] = b
          end
          for _, e in ipairs(b or {}) do
            local i = o - e.s + 1
            local state = i >= 1 and i <= e.n and sub(e.st, i, i) or ''
            if state == 'L' or state == 'M' then
              local att = leave(s, id, state)
              if x then removePointer(s, id) end
              if att then settleOne(s, id) end
              if keyed then unlock(s, id) end
              e.st = sub(e.st, 1, i - 1) .. 'A' .. sub(e.st, i + 1)
              b.changed = true
            end
          end
        end
      end
    end
  end
end
