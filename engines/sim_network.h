// SimNetwork: a network in memory with a clock of its own. Connections have two directions, each a bounded send buffer, a
// wire (latency, bandwidth) and a bounded receive buffer; listeners have backlogs; reset, half-close and close act as in Linux.
// Owner: a test; it outlives its loops. Thread: one; several Loops may live in it, each with a SimEngine, beside SimPeers.
// Time moves only when nothing is left to do at this instant: inside SimEngine::turn() when one engine is attached, else in
// step(). Everything is a function of the seed and of what the test does: no real clock, no global random number.
// Descriptors are indexes of its own, from kSimDescriptorBase up, the lowest free one first (as the kernel does).
#pragma once

#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engines/address.h"
#include "engines/clock.h"
#include "engines/engine.h"
#include "engines/sim_faults.h"
#include "engines/sim_random.h"

namespace weir {

class Loop;
class SimEngine;
class SimNetwork;
class SimPeer;

inline constexpr int kSimDescriptorBase = 1'000'000;  // so that one that strays into a system call is EBADF

// Of one direction. New connections take the network's link() for both.
struct SimLink {
  Duration latency = std::chrono::microseconds(50);
  uint64_t bytes_per_second = 0;            // 0: no bound
  uint32_t send_buffer_bytes = 256 * 1024;  // accepted and not yet acknowledged
  uint32_t window_bytes = 256 * 1024;       // arrived and not yet read
  uint32_t segment_bytes = 16 * 1024;       // what arrives at one instant
};

class SimClock final : public Clock {
 public:
  explicit SimClock(const SimNetwork& network) noexcept : network_(network) {}
  TimePoint now() noexcept override;

 private:
  const SimNetwork& network_;
};

// One end of a connection; side 0 is the one that connected.
struct SimEnd {
  uint64_t connection = 0;  // 0: none
  uint8_t side = 0;
  explicit operator bool() const noexcept { return connection != 0; }
};

class SimNetwork {
 public:
  struct Options {
    uint64_t seed = 1;
    SimLink link{};
    SimFaults faults{};
    uint32_t descriptors_max = 1u << 20;
    bool block_when_idle = false;  // nothing can ever happen by itself: really wait for another thread's wake
  };
  explicit SimNetwork(const Options& options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // The world.
  Clock& clock() noexcept { return clock_; }
  TimePoint now() const noexcept { return now_; }
  SimRandom& random() noexcept { return random_; }
  SimFaults& faults() noexcept { return faults_; }
  SimLink& link() noexcept { return link_; }
  // A line for each thing that happens on the wire, with its time; "c7>" is what the end that connected sent, "c7<" the other.
  void trace(std::function<void(const std::string&)> sink) { trace_ = std::move(sink); }
  bool tracing() const noexcept { return trace_ != nullptr; }
  void note(const std::string& what) const;
  static std::string name_of(SimEnd end);
  void set_descriptors_max(uint32_t count) noexcept { descriptors_max_ = count; }
  uint32_t descriptors_max() const noexcept { return descriptors_max_; }
  uint32_t descriptors() const noexcept { return descriptors_used_; }  // those that engines hold
  size_t connections() const noexcept { return connections_.size(); }
  size_t parked_peers() const noexcept { return peers_.size(); }

  // Scripts.
  void at(TimePoint when, std::function<void()> what);
  void after(Duration wait, std::function<void()> what) { at(now_ + wait, std::move(what)); }
  void drop_calls();                                                    // what at() and after() still had to do
  void fail(const SimScript& script) { scripts_.push_back(script); }
  void blackhole(const Address& address, bool on);                      // connects to it get no answer
  // A listening descriptor for Loop::adopt, or -EADDRINUSE. `shared`: as with SO_REUSEPORT, one of them gets each connection.
  int listen(const Address& address, uint32_t backlog = 4096, bool shared = false);
  // Scripted peers; they belong to the network and stay until forget().
  SimPeer& connect_peer(const Address& to);
  void serve(const Address& address, std::function<void(SimPeer&)> on_accept);
  void stop_serving(const Address& address);
  SimPeer& pair(int* fd);                                               // an established connection: its other end for adopt
  void forget(SimPeer& peer);

  // Running. step(): one tick of each loop; when none had anything to do, time moves to the next event or timer.
  // False when nothing will ever happen again. run_until(): steps until done() (true), or until nothing happens or steps_max
  // steps have passed (false). done() is asked after every network event too, so time stops where it became true.
  bool step(std::span<Loop* const> loops);
  bool run_until(std::span<Loop* const> loops, const std::function<bool()>& done, uint64_t steps_max = 10'000'000);
  void run_for(std::span<Loop* const> loops, Duration time);

  // For SimEngine and SimPeer. Counts are bytes or -errno; -EAGAIN where a descriptor would block.
  SimEnd open_end(SimEngine* engine, SimPeer* peer);
  void connect(SimEnd end, const Address& to);
  int connect_result(SimEnd end) const noexcept;                        // -EINPROGRESS, 0 or -errno
  int64_t write(SimEnd end, const char* data, size_t count);
  int64_t read(SimEnd end, char* data, size_t count);
  size_t readable_bytes(SimEnd end) const noexcept;
  bool read_ended(SimEnd end) const noexcept;                           // end of file or an error comes after those bytes
  size_t room(SimEnd end) const noexcept;
  uint64_t acked(SimEnd end) const noexcept;
  void shutdown(SimEnd end, ShutdownHow how);
  void close(SimEnd end, bool reset);
  void reset(SimEnd end);                                               // both ends see ECONNRESET
  void set_lowat(SimEnd end, uint32_t bytes);
  void set_owner(SimEnd end, SimEngine* engine, int fd) noexcept;
  const Address& address_of(SimEnd end, bool remote) const noexcept;

  int descriptor_open(SimEnd end);                                      // or -EMFILE
  SimEnd descriptor_end(int fd) const noexcept;
  bool descriptor_listens(int fd) const noexcept;
  void descriptor_free(int fd);
  SimEnd listener_pop(int fd);                                          // none: nothing is queued
  bool listener_ready(int fd) const noexcept;
  bool listener_shut(int fd) const noexcept;
  void listener_shutdown(int fd);
  void listener_close(int fd);
  void listener_owner(int fd, SimEngine* engine) noexcept;

  void attach(SimEngine& engine);
  void detach(SimEngine& engine);
  bool may_sleep() const noexcept { return engines_.size() == 1 && !stepping_; }
  bool blocks_when_idle() const noexcept { return block_when_idle_; }
  void poke(SimEngine& engine, int fd, Duration wait);                  // marks fd ready in that engine, later
  int scripted(OpKind kind, int fd);                                    // the error of a script that applies now, or 0
  Duration some_delay() noexcept;
  void run_due();                                                       // everything up to now
  TimePoint next_event() const noexcept { return events_.empty() ? kNever : events_.front().at; }
  void advance_to(TimePoint when);                                      // runs what is due on the way
  bool stop_asked() const noexcept { return stop_; }
  void peer_event(SimPeer& peer);

 private:
  struct Segment {
    std::string bytes;
    size_t taken = 0;
    bool fin = false;
    TimePoint arrival;
  };
  struct Half {
    std::string in;                 // arrived
    size_t in_taken = 0;
    std::deque<Segment> wire;       // sent by this half, not yet arrived at the other
    SimLink link;
    TimePoint wire_free{};
    size_t unacked = 0;
    uint64_t acked = 0;
    int error = 0;                  // reported once
    uint32_t lowat = 1;
    bool up = false;                // established as seen from here
    bool fin_arrived = false, was_reset = false, read_shut = false, write_shut = false, closed = false;
    SimEngine* engine = nullptr;
    SimPeer* peer = nullptr;
    int fd = -1;
    Address address;
  };
  struct Connection {
    Half half[2];
    int connect_result = -ENOTCONN;  // of side 0
  };
  struct Listener {
    Address address;
    std::deque<SimEnd> queue;
    uint32_t backlog = 0;
    bool shared = false, shut = false;
    SimEngine* engine = nullptr;
    int fd = -1;                    // -1: scripted
    std::function<void(SimPeer&)> on_accept;
  };
  struct Descriptor {
    SimEnd end;
    uint32_t listener = 0;          // its number, 0: none
    bool used = false;
  };
  enum class EventKind : uint8_t { call, arrive, acked, broken, syn, connected, refused, poke, peer };
  struct Event {
    TimePoint at;
    uint64_t order;
    EventKind kind;
    SimEnd end;
    uint64_t value = 0;
    SimEngine* engine = nullptr;
    std::string text;
    std::function<void()> call;
    static bool later(const Event& a, const Event& b) noexcept { return a.at != b.at ? a.at > b.at : a.order > b.order; }
  };

  Connection* find(SimEnd end) const noexcept;
  Half& half(SimEnd end) const noexcept;
  void schedule(Event&& event);
  void note_bytes(SimEnd from, std::string_view bytes) const;
  void run_event(Event& event);
  void notify(Half& half);
  void pump_wire(SimEnd from);
  void put_segment(SimEnd from, Segment&& segment);
  void schedule_reset(SimEnd end, Duration wait, int error);
  void syn(SimEnd end, const std::string& to, uint64_t tries);
  void accept_into(Listener& listener, SimEnd client);
  Listener* pick_listener(const std::string& address);
  Listener* listener_of(int fd) const noexcept;
  void fail_connect(SimEnd end, int error);
  void break_half(Half& half, int error);
  int new_descriptor();
  void run_peer(uint64_t id);

  SimClock clock_;
  SimRandom random_;
  SimFaults faults_;
  SimLink link_;
  TimePoint now_;
  std::vector<Event> events_;       // a heap: first by time, then by order
  uint64_t orders_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t connection_ids_ = 0;
  mutable std::map<uint32_t, Listener> listeners_;
  uint32_t listener_ids_ = 0;
  std::vector<std::string> blackholes_;
  std::vector<Descriptor> descriptors_;
  std::priority_queue<int, std::vector<int>, std::greater<>> free_descriptors_;
  uint32_t descriptors_used_ = 0;
  uint32_t descriptors_max_;
  uint16_t ports_ = 20000;
  std::vector<SimEngine*> engines_;
  std::map<uint64_t, std::unique_ptr<SimPeer>> peers_;
  uint64_t peer_ids_ = 0;
  std::vector<SimScript> scripts_;
  std::function<bool()> done_;
  std::function<void(const std::string&)> trace_;
  bool stop_ = false, stepping_ = false;
  bool block_when_idle_;
};

}  // namespace weir
