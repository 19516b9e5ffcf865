-- The common ack: not keyed, first attempts, every record live and attached. Everything else falls through to settle.lua, before anything
-- is written.
-- ARGV: flags, maxAttempts, maxInFlight, maxAckedAhead, op, arg, reason, backoff, np, np times partition, nr, nr times index of partition,
-- start, count, nonce.
local np = tonumber(ARGV[9])
local fields = {'m'}
for i = 1, np do fields[i + 1] = ARGV[9 + i] end
local vals = call('HMGET', H, unpack(fields))
local ready, wake, _, touch, dirty = match(vals[1] or '', '^(%d) (%d+) (%d+) (%d+) (%d)')
if ready ~= '1' then return 'NL' end
wake = tonumber(wake)
local nr = tonumber(ARGV[10 + np])
local fast = ARGV[5] == '1' and (wake == 0 or wake > now) and not string.find(ARGV[1], '[of]')
if fast then
  local shards, cur, xadd, lset = {}, {}, {}, {}
  local at = 11 + np
  for _ = 1, nr do
    local ip, start, count, nonce = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
    at = at + 4
    local s = shards[ip]
    if not s then
      local v = vals[ip + 1]
      if not v then fast = false break end
      local f, c, i, ia, pre, dl, ah, sq, d, bl, rest = match(v, HOT)
      if not f then fast = false break end
      s = {p = ARGV[9 + ip], f = tonumber(f), c = tonumber(c), i = tonumber(i), ia = tonumber(ia), pre = tonumber(pre), dl = dl,
        ahead = tonumber(ah), seq = tonumber(sq), dirty = d, blocks = tonumber(bl), rest = rest, done = {}, n = 0}
      shards[ip] = s
    end
    local b = cur[nonce]
    if not b then
      local from, n, e, st = match(call('HGET', B .. 'L:' .. s.p, nonce) or '', '^1|(%d+),(%d+),(%d+),(%a+)$')
      if not from then fast = false break end
      b = {p = s.p, head = from, from = tonumber(from), n = tonumber(n), e = tonumber(e), st = st}
      if b.e <= now then fast = false break end
      cur[nonce] = b
      lset[#lset + 1] = nonce
    end
    local k, n, st = start - b.from, b.n, b.st
    if b.p ~= s.p or k < 0 or k + count > n or start < s.f then fast = false break end
    if count == n then
      if st ~= 'L' then fast = false break end
      st = 'A'
    else
      if #st == 1 then
        if st ~= 'L' then fast = false break end
        st = string.rep('L', n)
      end
      if string.find(string.sub(st, k + 1, k + count), '[^L]') then fast = false break end
      st = string.sub(st, 1, k) .. string.rep('A', count) .. string.sub(st, k + count + 1)
    end
    if not string.find(st, 'L', 1, true) then
      if not string.find(st, 'N', 1, true) then st = 'A' end
      s.blocks = s.blocks - 1
      xadd[#xadd + 1] = now - FINISHED
      xadd[#xadd + 1] = s.p .. ':' .. nonce
    end
    b.st = st
    s.n = s.n + 1
    s.done[s.n] = {start, start + count}
    s.i, s.ia = s.i - count, s.ia - count
    s.acked = (s.acked or 0) + count
  end
  if fast then
    local mif, maa = tonumber(ARGV[3]), tonumber(ARGV[4])
    for i = 1, #lset do
      local b = cur[lset[i]]
      call('HSET', B .. 'L:' .. b.p, lset[i], fmt('1|%s,%d,%d,%s', b.head, b.n, b.e, b.st))
    end
    if xadd[1] then
      if #xadd <= 1000 then
        call('ZADD', B .. 'X', unpack(xadd))
      else
        for i = 1, #xadd, 2 do call('ZADD', B .. 'X', xadd[i], xadd[i + 1]) end
      end
    end
    local hset, marks, out, freed = {}, {}, {}, 0
    for _, s in pairs(shards) do
      local full = s.i + s.acked >= mif or s.c - s.f >= maa
      settleDone(s)
      if full then
        local room = math.min(mif - s.i, maa - (s.c - s.f))
        if room > 0 then freed = freed + room end
      end
      if s.dirty == '0' then
        marks[#marks + 1], marks[#marks + 2] = now, s.p
      end
      out[#out + 1] = s.p
      hset[#hset + 1] = s.p
      hset[#hset + 1] = fmt('%d %d %d %d %d %s %d %d 1 %d %s', s.f, s.c, s.i, s.ia, s.pre, s.dl, s.ahead, s.seq + 1, s.blocks, s.rest)
    end
    if marks[1] then
      call('ZADD', B .. 'S', unpack(marks))
    end
    touch = tonumber(touch)
    if dirty == '0' or now - touch > 10000 then
      local id = match(H, ':(%d+):H$')
      local head, tail = match(vals[1], '^(%d %d+ %d+) %d+ %d (.*)$')
      if dirty == '0' then call('ZADD', G .. 'dirty', now, id) end
      if now - touch > 10000 then
        touch = now
        call('ZADD', G .. 'subs', now, id)
      end
      hset[#hset + 1] = 'm'
      hset[#hset + 1] = fmt('%s %d 1 %s', head, touch, tail)
    end
    call('HSET', H, unpack(hset))
    return fmt('OK %d %d %d 0 0 0 %d %s %s', now, wake == 0 and -1 or wake - now, freed, #out, table.concat(out, ' '), string.rep('1 ', nr))
  end
end
