-- wrk's request by environment, and its result as one line of JSON.
wrk.method = os.getenv("BENCH_METHOD") or "GET"
local body = tonumber(os.getenv("BENCH_BODY") or "0")
if body > 0 then wrk.body = string.rep("b", body) end
if os.getenv("BENCH_CLOSE") == "1" then wrk.headers["Connection"] = "close" end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'BENCH {"requests": %d, "us": %d, "bytes": %d, ' ..
    '"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d, "p50": %d, "p99": %d}\n',
    summary.requests, summary.duration, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
