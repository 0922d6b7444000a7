-- Commit a transaction: check that everything it has read is still as it was, then write.
--
-- KEYS: the hashes and sorted sets that it has read or writes; the last five are the format, the turn, the hold, the
-- counter of commits and the channel of all clients. While the hold exists, nothing is written. While the turn exists,
-- only the transaction that it names writes.
-- ARGV: a sequence of entries, each a letter, the number of its key, and what follows:
--   v key n  then n pairs: a field, and the version of the record in it ("" for none)
--   f key n  then n pairs: a field, and the value in it ("" for none)
--   r key min max reverse limit digest   a range of a sorted set, and the digest of its members
--   c key min max count                  how many members a range has
--   h key n  then n pairs: a field and a record, which is stored with a new version
--   s key n  then n pairs: a field and a value
--   d key n  then n fields to delete
--   a key n  then n members to add
--   m key n  then n members to remove
--   p                                    tell other nodes; before all that is written
--   t name                               the transaction has this name; before all others
--   u format                             it writes data of this format only; before all others
--   w name                               the client that writes, in new versions and messages; before all others
-- Returns the number of this commit, 0 if nothing was written, -1 if something read has changed since, -2 if the store
-- is held, -3 if it is another transaction's turn, or -4 if the store has another format, or is gone.
--
-- A version is the number of a commit and the name of its client: after a fail-over that lost commits, their numbers
-- come again.
--
-- Redis does not undo what a script has written before an error. So everything that the server may refuse is done
-- first: the counter, since a server that is full takes no command that adds, and the message, which a user may not be
-- allowed to send. A transaction that begins by deleting is accepted by a full server, which it gives room.

local position, count = 1, #ARGV
local version = nil
local CHUNK = 1000

local function commit_number()
    if version == nil then
        version = redis.call('INCR', KEYS[#KEYS - 1])
    end
    return version
end

local function next_items(width)
    local items = tonumber(ARGV[position + 2]) * width
    local first = position + 3
    position = first + items
    return KEYS[tonumber(ARGV[position - items - 2])], first, items
end

local function fields_of(first, last)
    local fields = {}
    for place = first, last, 2 do
        fields[#fields + 1] = ARGV[place]
    end
    return fields
end

local function version_of(stored)
    if not stored then
        return ''
    end
    return string.sub(stored, 1, (string.find(stored, ':', 1, true) or 1) - 1)
end

local function is_current(letter)
    if letter == 'v' or letter == 'f' then
        local key, first, items = next_items(2)
        for begin = first, first + items - 1, 2 * CHUNK do
            local last = math.min(begin + 2 * CHUNK, first + items) - 1
            local stored = redis.call('HMGET', key, unpack(fields_of(begin, last)))
            for number = 1, #stored do
                local found = stored[number]
                if letter == 'v' then
                    found = version_of(found)
                end
                if (found or '') ~= ARGV[begin + 2 * number - 1] then
                    return false
                end
            end
        end
        return true
    end
    local key, low, high = KEYS[tonumber(ARGV[position + 1])], ARGV[position + 2], ARGV[position + 3]
    if letter == 'c' then
        position = position + 5
        return redis.call('ZLEXCOUNT', key, low, high) == tonumber(ARGV[position - 1])
    end
    local reverse, limit, digest = ARGV[position + 4], ARGV[position + 5], ARGV[position + 6]
    position = position + 7
    local members
    if reverse == '1' then
        members = redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, limit)
    else
        members = redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, limit)
    end
    return redis.sha1hex(table.concat(members)) == digest
end

local function write(letter, writer)
    if letter == 'p' then
        position = position + 1
        commit_number()
        redis.call('PUBLISH', KEYS[#KEYS], writer)
        return
    end
    local width = (letter == 'h' or letter == 's') and 2 or 1
    local key, first, items = next_items(width)
    for begin = first, first + items - 1, width * CHUNK do
        local last = math.min(begin + width * CHUNK, first + items) - 1
        local arguments = {}
        if letter == 'h' then
            local prefix = string.format('%.0f-%s:', commit_number(), writer)
            for place = begin, last, 2 do
                arguments[#arguments + 1] = ARGV[place]
                arguments[#arguments + 1] = prefix .. ARGV[place + 1]
            end
            redis.call('HSET', key, unpack(arguments))
        else
            for place = begin, last do
                if letter == 'a' then
                    arguments[#arguments + 1] = 0
                end
                arguments[#arguments + 1] = ARGV[place]
            end
            if letter == 's' or letter == 'a' then
                commit_number()
            end
            local commands = {s = 'HSET', d = 'HDEL', a = 'ZADD', m = 'ZREM'}
            redis.call(commands[letter], key, unpack(arguments))
            commit_number()
        end
    end
end

local function obstacle(name, format)
    local found, turn, hold = unpack(redis.call('MGET', KEYS[#KEYS - 4], KEYS[#KEYS - 3], KEYS[#KEYS - 2]))
    if hold then
        return -2
    end
    if turn and turn ~= name then
        return -3
    end
    if format and found ~= format then
        return -4
    end
    return nil
end

local READS = {v = true, f = true, r = true, c = true}
local name, format, writer = nil, nil, ''
while position <= count do
    local letter = ARGV[position]
    if letter == 't' then
        name = ARGV[position + 1]
        position = position + 2
    elseif letter == 'u' then
        format = ARGV[position + 1]
        position = position + 2
    elseif letter == 'w' then
        writer = ARGV[position + 1]
        position = position + 2
    elseif READS[letter] then
        if not is_current(letter) then
            return -1
        end
    else
        local answer = version == nil and obstacle(name, format)
        if answer then
            return answer
        end
        write(letter, writer)
    end
end
return version or 0
