-- The whole of a lease. ARGV: see acquire_fast.lua.
if m.ready ~= '1' then return 'NL' end
local want, visibility, nonce = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
wakeUp()

local fresh, absent, gaps = {}, {}, {}
for i = 1, tonumber(ARGV[8]) do
  local at = 6 + 3 * i
  local s = shard(ARGV[at])
  if not s then
    absent[#absent + 1] = ARGV[at]
  else
    fresh[#fresh + 1] = {s = s, head = tonumber(ARGV[at + 2])}
    local start = tonumber(ARGV[at + 1])
    if s.f < start then
      if find(FLAGS, 's', 1, true) then
        skipGap(s, start)
      else
        gaps[#gaps + 1] = fmt('%s %d %d', s.p, s.f, start)
      end
    end
  end
end

-- Runs of consecutive records that share partition, attempt and state become one block.
local runs = {}
local function grant(s, o, x)
  local n, attempt, state = tonumber(o), (x and x.att or 0) + 1, 'M'
  want = want - 1
  s.i, s.changed = s.i + 1, true
  if attached(s, o, x and x.det) then
    s.ia, state = s.ia + 1, 'L'
  else
    call('ZADD', B .. 'B:' .. s.p, o, o)
  end
  local r = runs[#runs]
  if r and r.s == s and r.attempt == attempt and r.state == state and r.from + r.n == n then
    r.n = r.n + 1
  else
    runs[#runs + 1] = {s = s, from = n, n = 1, attempt = attempt, state = state}
  end
end

-- Owed and scheduled records that are due: the partition whose head waits longest first.
local function takeOwed(limit, take)
  local page = 0
  while limit > 0 do
    local heads = call('ZRANGEBYSCORE', B .. 'OP', '-inf', now, 'LIMIT', page, 200)
    for _, p in ipairs(heads) do
      local s = shard(p)
      if not s then
        call('ZREM', B .. 'OP', p)
      elseif limit > 0 and s.i < MIF then
        local n = math.min(limit, MIF - s.i)
        local ids = call('ZRANGEBYSCORE', B .. 'O:' .. p, '-inf', now, 'LIMIT', 0, n)
        if ids[1] then
          local vals = call('HMGET', B .. 'P:' .. p, unpack(ids))
          for k, o in ipairs(ids) do
            local x = vals[k] and parsePointer(vals[k]) or nil
            unowe(s, o, x)
            take(s, o, x)
            limit = limit - 1
          end
        end
      end
    end
    if #heads < 200 then return end
    page = page + 200
  end
end

-- Fair: of the key with the least in flight, as many as make it equal to the next.
local function takeFair()
  local skip, bare = 0, {}
  while want > 0 and skip < 1000 do
    local top = call('ZRANGE', B .. 'FQ', skip, skip + math.min(want, 64), 'WITHSCORES')
    if not top[1] then return end
    local most = #top / 2
    if most > 1 then most = most - 1 end -- the last is there to compare with
    for k = 1, most do
      local pair, count, n = top[2 * k - 1], math.floor(tonumber(top[2 * k]) / TURN), want
      local p, kh = match(pair, '^(%d+):(.+)$')
      local s = shard(p)
      if top[2 * k + 2] then n = math.min(n, math.max(1, math.floor(tonumber(top[2 * k + 2]) / TURN) - count)) end
      if not s then
        call('ZREM', B .. 'FQ', pair)
      elseif n > 0 and s.i >= MIF then
        skip = skip + 1
      elseif n > 0 then
        if bare[s] == nil then bare[s] = call('EXISTS', B .. 'P:' .. p) == 0 end
        local ids = call('ZPOPMIN', B .. 'FW:' .. pair, math.min(n, MIF - s.i))
        for i = 1, #ids, 2 do
          local o = ids[i]
          local x = not bare[s] and pointer(s, o) or nil
          countWaiting(s, o, x, -1)
          grant(s, o, x)
        end
        if ids[1] then count = call('HINCRBY', B .. 'F', pair, #ids / 2) end
        m.tick, m.changed = (m.tick + 1) % TURN, true
        if call('EXISTS', B .. 'FW:' .. pair) == 0 then
          call('ZREM', B .. 'FQ', pair)
        else
          call('ZADD', B .. 'FQ', count * TURN + m.tick, pair)
        end
      end
    end
  end
end

-- New records from the cursor on. After a rebuild some beyond it are known already (pre); they are passed.
local function takeFresh(s, head)
  local key = B .. 'A:' .. s.p
  while want > 0 and s.c < head and s.i < MIF and s.c - s.f < MAA and s.dl < 100000 do
    local n = math.min(want, head - s.c, MIF - s.i, MAA - (s.c - s.f))
    if s.pre > 0 then
      local before = call('ZREVRANGEBYSCORE', key, s.c, '-inf', 'LIMIT', 0, 1)[1]
      before = before and tonumber(before) or 0
      if before > s.c then
        s.pre, s.c, s.changed, n = s.pre - (before - s.c), before, true, 0
      elseif call('HEXISTS', B .. 'P:' .. s.p, pad(s.c)) == 1 then
        s.pre, s.c, s.changed, n = s.pre - 1, s.c + 1, true, 0
      else
        n = 1
      end
    end
    if n > 0 then
      local r = runs[#runs]
      if r and r.s == s and r.attempt == 1 and r.state == 'L' and r.from + r.n == s.c then
        r.n = r.n + n
      else
        runs[#runs + 1] = {s = s, from = s.c, n = n, attempt = 1, state = 'L'}
      end
      s.c, s.i, s.ia, s.changed = s.c + n, s.i + n, s.ia + n, true
      want = want - n
    end
  end
end

saveHeads()
if #gaps == 0 then
  if fair then
    takeOwed(1000, function(s, o, x) fairAdd(s, o, keyOf(s, o) or '0', x) end)
    takeFair()
  else
    takeOwed(want, grant)
  end
  if not keyed then
    for _, x in ipairs(fresh) do takeFresh(x.s, x.head) end
  end
end

local grants, expires = {}, now + visibility
for i, r in ipairs(runs) do
  local name = nonce
  if i > 1 then name = nonce .. '.' .. i end
  r.s.blocks = r.s.blocks + 1
  call('HSET', B .. 'L:' .. r.s.p, name, fmt('%d|%d,%d,%d,%s', r.attempt, r.from, r.n, expires, r.state))
  call('ZADD', B .. 'X', expires, r.s.p .. ':' .. name)
  grants[i] = fmt('%s %d %d %d %s %d', r.s.p, r.from, r.n, r.attempt, name, expires)
  freed = math.max(0, freed - r.n)
end
if runs[1] then event(expires) end
local effects = finish()
local pos = {}
for i, x in ipairs(fresh) do
  local s = x.s
  pos[i] = fmt('%s %d %d %d', s.p, s.f, s.c, math.max(0, math.min(MIF - s.i, MAA - (s.c - s.f))))
end
return fmt('%s %d %s %d %s %d %s %d %s', effects, #grants, table.concat(grants, ' '), #pos, table.concat(pos, ' '), #absent,
  table.concat(absent, ' '), #gaps, table.concat(gaps, ' '))
