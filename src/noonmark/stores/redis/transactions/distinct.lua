-- The different beginnings of the members of a sorted set, each by one step in it.
--
-- KEYS: the sorted set.
-- ARGV: the least and the greatest member, how many values make up a beginning, and at most how many steps to take.
-- Returns the first member of each beginning, in order. Values are as `ordered.py` writes them.

local low, high, values, steps = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local NUMBER, TEXT = 2, 3

local function length_of_beginning(member)
    local place = 1
    for _ = 1, values do
        local kind = string.byte(member, place)
        if kind == NUMBER then
            place = place + 9
        elseif kind == TEXT then
            local _, last = string.find(member, '\0\0', place, true)
            if not last then
                return #member
            end
            place = last + 1
        else
            place = place + 1
        end
    end
    return place - 1
end

local found = {}
while #found < steps do
    local member = redis.call('ZRANGEBYLEX', KEYS[1], low, high, 'LIMIT', 0, 1)[1]
    if not member then
        break
    end
    found[#found + 1] = member
    low = '(' .. string.sub(member, 1, length_of_beginning(member)) .. '\255'
end
return found
