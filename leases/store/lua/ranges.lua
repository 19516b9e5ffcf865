-- Settles the attached offsets [a, b) of shard s, none of which is settled. A:<p> has the settled ranges above the frontier: member = end,
-- score = begin; they neither overlap nor touch.
local function settleRange(s, a, b)
  local key = B .. 'A:' .. s.p
  if a == s.f then
    s.f = b
    if s.ahead > 0 then
      local r = call('ZRANGEBYSCORE', key, b, b)
      if r[1] then
        call('ZREM', key, r[1])
        local e = tonumber(r[1])
        s.ahead = s.ahead - (e - b)
        s.f = e
      end
    end
    if s.f > s.c then
      s.pre = s.pre - (s.f - s.c)
      s.c = s.f
    end
    return
  end
  s.ahead = s.ahead + (b - a)
  local from, to = a, b
  if s.ahead > b - a then
    local before = call('ZSCORE', key, fmt('%d', a))
    if before then
      call('ZREM', key, fmt('%d', a))
      from = tonumber(before)
    end
    local after = call('ZRANGEBYSCORE', key, b, b)
    if after[1] then to = tonumber(after[1]) end
  end
  call('ZADD', key, fmt('%d', from), fmt('%d', to))
end

local function byFirst(x, y) return x[1] < y[1] end

-- Settles the collected ranges of s.done in order, touching ones together.
local function settleDone(s)
  local d = s.done
  if not d then return end
  s.done = nil
  if d[2] then table.sort(d, byFirst) end
  local a, b = d[1][1], d[1][2]
  for i = 2, #d do
    if d[i][1] == b then
      b = d[i][2]
    else
      settleRange(s, a, b)
      a, b = d[i][1], d[i][2]
    end
  end
  settleRange(s, a, b)
end
