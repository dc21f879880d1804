#include "tests/engine_contract/world.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <stdexcept>

#include "engines/sim_engine.h"
#include "engines/sim_peer.h"

namespace weir::contract {

namespace {

void must(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::to_string(errno));
}

class RealPeer final : public Peer {
 public:
  explicit RealPeer(int fd) : fd_(fd) { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK); }
  ~RealPeer() override { close(); }
  int64_t send(std::string_view bytes) override {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
  }
  int64_t recv(char* to, size_t count) override {
    const ssize_t n = ::recv(fd_, to, count, 0);
    return n < 0 ? -errno : n;
  }
  void finish() override { ::shutdown(fd_, SHUT_WR); }
  void reset() override {
    const linger now{1, 0};
    if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() override {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

class SimSide final : public Peer {
 public:
  explicit SimSide(SimPeer& peer) : peer_(&peer) { peer.manual(); }
  ~SimSide() override { peer_->network().forget(*peer_); }
  int64_t send(std::string_view bytes) override {
    return peer_->connected() ? peer_->write_some(bytes) : -EAGAIN;
  }
  int64_t recv(char* to, size_t count) override {
    const int result = peer_->connect_result();
    return result == -EINPROGRESS ? -EAGAIN : result < 0 ? result : peer_->read_some(to, count);
  }
  void finish() override { peer_->finish(); peer_->network().shutdown(peer_->end(), ShutdownHow::write); }
  void reset() override { peer_->reset(); }
  void close() override { peer_->close(); }

 private:
  SimPeer* peer_;
};

class RealListener final : public PeerListener {
 public:
  RealListener(int fd, const Address& at) : fd_(fd) { address = at; }
  ~RealListener() override { ::close(fd_); }
  std::unique_ptr<Peer> accept() override {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd < 0 ? nullptr : std::make_unique<RealPeer>(fd);
  }

 private:
  int fd_;
};

class SimListener final : public PeerListener {
 public:
  SimListener(SimNetwork& network, const Address& at) : network_(network) {
    address = at;
    network_.serve(at, [this](SimPeer& peer) {
      peer.manual();
      queue_.push_back(&peer);
    });
  }
  ~SimListener() override { network_.stop_serving(address); }
  std::unique_ptr<Peer> accept() override {
    if (queue_.empty()) return nullptr;
    SimPeer* peer = queue_.front();
    queue_.pop_front();
    return std::make_unique<SimSide>(*peer);
  }

 private:
  SimNetwork& network_;
  std::deque<SimPeer*> queue_;
};

void shrink(int fd) {
  const int small = 4096;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::epoll: return "epoll";
    case Kind::uring: return "io_uring";
    case Kind::both: return "both";
    case Kind::sim: return "sim";
    case Kind::sim_faulty: return "sim with faults";
  }
  return "?";
}

namespace {
// For whoever debugs one engine: WEIR_CONTRACT_ENGINE=io_uring ./engine_contract. Unset, as in CI, it is all of them.
std::vector<Kind> chosen(std::vector<Kind> kinds) {
  const char* only = std::getenv("WEIR_CONTRACT_ENGINE");
  const auto other = [&](Kind kind) { return !std::string_view(kind_name(kind)).starts_with(only); };
  if (only != nullptr) std::erase_if(kinds, other);
  return kinds;
}
}  // namespace

std::vector<Kind> all_kinds() { return chosen({Kind::epoll, Kind::uring, Kind::both, Kind::sim, Kind::sim_faulty}); }
std::vector<Kind> kernel_kinds() { return chosen({Kind::epoll, Kind::uring, Kind::both}); }

SimFaults harmless_faults() {
  SimFaults faults;
  faults.short_recv = faults.short_send = 0.3;
  faults.hold_back = faults.delay_completion = 0.2;
  faults.reorder = faults.cancel_race = 0.5;
  return faults;
}

bool Peer::drain(std::string* into) {
  std::array<char, 65536> bytes;
  bool some = false;
  while (true) {
    const int64_t n = recv(bytes.data(), bytes.size());
    if (n == -EAGAIN) return some;
    if (n == 0) ended = true;
    if (n < 0) error = static_cast<int>(-n);
    if (n <= 0) return some;
    some = true;
    if (into != nullptr) into->append(bytes.data(), static_cast<size_t>(n));
  }
}

World::World(Kind kind, const Options& options) : kind_(kind), options_(options) {
  const bool sim = kind == Kind::sim || kind == Kind::sim_faulty;
  if (sim) {
    SimNetwork::Options world;
    world.seed = options.seed;
    world.block_when_idle = options.block_when_idle;
    if (options.small_buffers) world.link.send_buffer_bytes = world.link.window_bytes = 4096;
    network_ = std::make_unique<SimNetwork>(world);
  }
  Loop::Options loop_options;
  loop_options.slab_bytes_max = options.slab_bytes_max;
  loop_options.gather = loop_options.gather_always = options.gather;
  loop_ = std::make_unique<Loop>(sim ? network_->clock() : clock_, loop_options);
  for (int i = 0; i < (kind == Kind::both ? 2 : 1); ++i) {
    auto made = make_engine(*loop_, engine(), network_.get());
    loop_->add_engine(options.wrap ? options.wrap(std::move(made)) : std::move(made));
  }
  warm_up();
  if (kind == Kind::sim_faulty) network_->faults() = harmless_faults();
}

World::~World() {
  loop_.reset();
  for (const int fd : held_) ::close(fd);
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

EngineKind World::engine() {
  if (kind_ == Kind::both) return turns_++ % 2 == 0 ? EngineKind::uring : EngineKind::epoll;
  return kind_ == Kind::epoll ? EngineKind::epoll : kind_ == Kind::uring ? EngineKind::uring : EngineKind::sim;
}

// One connection through its life, so that what an engine allocates once is there before the base is read.
void World::warm_up() {
  {
    Conn conn(*this);
    auto peer = pair(conn.socket);
    conn.read(1);
    peer->send("x");
    must(run([&] { return conn.received == 1; }), "the world does not start");
    conn.close();
  }
  ticks(3);  // an engine may refill its window in a later turn
  slabs_base_ = loop_->slabs().in_use();
}

int World::real_listen(Address& address, bool unix_socket) {
  if (unix_socket) {
    if (directory_.empty()) {
      char pattern[] = "/tmp/weir-contract-XXXXXX";
      must(mkdtemp(pattern) != nullptr, "mkdtemp");
      directory_ = pattern;
    }
    address = *Address::parse("unix:" + directory_ + "/" + std::to_string(sim_ports_++));
  } else {
    address = *Address::parse("127.0.0.1:0");
  }
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  must(fd >= 0, "socket");
  if (options_.small_buffers) shrink(fd);
  must(::bind(fd, &address.any, address.length) == 0, "bind");
  must(::listen(fd, 4096) == 0, "listen");
  if (!unix_socket) must(getsockname(fd, &address.any, &address.length) == 0, "getsockname");
  return fd;
}

std::unique_ptr<Peer> World::pair(Socket& socket) {
  int fd = -1;
  std::unique_ptr<Peer> peer;
  if (simulated()) {
    peer = std::make_unique<SimSide>(network_->pair(&fd));
  } else {
    Address address;
    const int listener = real_listen(address, false);
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(far >= 0, "socket");
    if (options_.small_buffers) shrink(far);
    must(::connect(far, &address.any, address.length) == 0, "connect");
    fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    ::close(listener);
    const int on = 1;
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peer = std::make_unique<RealPeer>(far);
  }
  must(fd >= 0, "pair");
  loop_->adopt(socket, fd, engine());
  return peer;
}

Address World::listen(Socket& socket, bool unix_socket) {
  Address address;
  int fd;
  if (simulated()) {
    const std::string port = std::to_string(sim_ports_++);
    address = *Address::parse(unix_socket ? "unix:/sim/" + port : "127.0.0.1:" + port);
    fd = network_->listen(address);
  } else {
    fd = real_listen(address, unix_socket);
  }
  must(fd >= 0, "listen");
  loop_->adopt(socket, fd, engine());
  return address;
}

std::unique_ptr<Peer> World::connect(const Address& to) {
  if (simulated()) return std::make_unique<SimSide>(network_->connect_peer(to));
  const int fd = ::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  must(fd >= 0, "socket");
  must(::connect(fd, &to.any, to.length) == 0 || errno == EINPROGRESS, "connect");
  return std::make_unique<RealPeer>(fd);
}

std::unique_ptr<PeerListener> World::serve(bool unix_socket) {
  if (simulated()) {
    const std::string port = std::to_string(sim_ports_++);
    const std::string at = unix_socket ? "unix:/sim/" + port : "127.0.0.1:" + port;
    return std::make_unique<SimListener>(*network_, *Address::parse(at));
  }
  Address address;
  const int fd = real_listen(address, unix_socket);
  return std::make_unique<RealListener>(fd, address);
}

Address World::nobody() {
  if (simulated()) return *Address::parse("127.0.0.1:7");
  Address address = *Address::parse("127.0.0.1:0");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(fd >= 0 && ::bind(fd, &address.any, address.length) == 0, "bind");  // bound, and never listens
  must(getsockname(fd, &address.any, &address.length) == 0, "getsockname");
  held_.push_back(fd);
  return address;
}

void World::submit(Op& op) {
  ledger_.submitting(op);
  loop_->submit(op);
  ledger_.submitted(op);
}

bool World::run(const std::function<bool()>& done) {
  for (uint32_t idle = 0; idle < kIdleTicksMax;) {
    if (done()) return true;
    if (loop_->tick(std::chrono::milliseconds(idle < 100 ? 1 : 5)) > 0) idle = 0;
    else ++idle;
  }
  return done();
}

void World::ticks(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) loop_->tick(std::chrono::microseconds(200));
}

void World::close(Socket& socket, bool linger_reset) {
  if (socket.fd < 0) return;
  loop_->shutdown(socket, ShutdownHow::both);
  if (!run([&] { return socket.in_flight == 0; })) ledger_.wrong("ops stay in flight after shutdown");
  else loop_->close(socket, linger_reset);
}

std::string World::verdict() {
  run([&] { return loop_->ops_in_flight() == 0; });
  ticks(3);
  std::string out = ledger_.text();
  if (ledger_.outstanding() != 0) out += std::to_string(ledger_.outstanding()) + " ops never completed\n";
  if (loop_->ops_in_flight() != 0) out += std::to_string(loop_->ops_in_flight()) + " ops in flight\n";
  if (loop_->slabs().in_use() != slabs_base_) {
    out += std::to_string(loop_->slabs().in_use()) + " slabs in use, " + std::to_string(slabs_base_) + " before\n";
  }
  return out;
}

// ---- Conn

Conn::Conn(World& w, std::string name, uint64_t in_seed)
    : world(w), check(w.ledger(), in_seed, std::move(name)), checking(in_seed != 0) {
  recv.conn = send.conn = this;
  recv.socket = send.socket = &socket;
  recv.complete = received_some;
  send.complete = sent_some;
  send.bytes = &out;
}

void Conn::read(uint32_t bytes_want) {
  want = bytes_want;
  recv.want = want;
  world.submit(recv);
}

void Conn::write(std::string_view bytes) {
  if (!out.append_copy(world.loop().slabs(), bytes.data(), bytes.size())) world.ledger().wrong("the pool is empty");
  if (send.idle() && send_error == 0 && !out.empty()) world.submit(send);
}

void Conn::received_some(Op& op) noexcept {
  Conn& c = *static_cast<Recv&>(op).conn;
  Ledger& ledger = c.world.ledger();
  ledger.completed(op);
  ++c.recvs;
  ++c.served[static_cast<size_t>(op.engine)];
  Chain bytes = std::move(c.recv.bytes);
  if (op.result > 0 && bytes.bytes() != static_cast<size_t>(op.result)) ledger.wrong("recv: result is not its bytes");
  if (op.result <= 0 && !bytes.empty()) ledger.wrong("recv: bytes with an error");
  if (op.result > static_cast<int64_t>(c.recv.want)) ledger.wrong("recv: more than it asked for");
  if (op.result == 0) c.ended = true;
  if (op.result < 0) c.recv_error = -op.result;
  if (op.result <= 0) return;
  c.received += bytes.bytes();
  for (const ChainNode* node = bytes.first(); node != nullptr; node = node->next) {
    if (node->slice.slab()->pool != &c.world.loop().slabs()) ledger.wrong("recv: bytes of another pool");
    if (!c.checking) c.got.append(node->slice.view());
  }
  if (c.checking) c.check.feed(bytes);
  bytes.clear();
  if (c.on_recv) c.on_recv(c);
  if (c.reading && c.recv.idle()) c.read(c.want);
}

void Conn::sent_some(Op& op) noexcept {
  Conn& c = *static_cast<Send&>(op).conn;
  c.world.ledger().completed(op);
  ++c.sends;
  ++c.served[static_cast<size_t>(op.engine)];
  if (op.result == 0) c.world.ledger().wrong("send: completed without progress");
  if (op.result < 0) c.send_error = -op.result;
  if (op.result > static_cast<int64_t>(c.out.bytes())) c.world.ledger().wrong("send: more than there was");
  if (op.result <= 0) return;
  c.sent += static_cast<uint32_t>(op.result);
  c.out.consume(static_cast<uint32_t>(op.result));
  if (!c.out.empty()) c.world.submit(c.send);
}

}  // namespace weir::contract
