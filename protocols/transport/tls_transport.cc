#include "protocols/transport/tls_transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>

namespace weir {

//   handshaking --(on_ready)--> open --(close)--> close_notify --(sent)--> inner close
//        |                        |
//        +-- fail(): alert -------+--> failed --(owner told, closes)--> alert sent, peer's end or a second --> inner close

namespace {

constexpr size_t kRecordBytesMax = 16384;
constexpr size_t kRecordBytesFirst = 1300;            // with its overhead one segment of an ordinary path
constexpr uint64_t kGrowAfterBytes = 16u << 10;       // sent in one go: then whole records
constexpr Duration kQuiet = std::chrono::seconds(1);  // after so long the path is taken for cold again
constexpr size_t kCipherBytesMax = 128u << 10;        // made ahead of the socket
constexpr size_t kDirectBytes = 8192;                 // a slice of that many becomes a record where it stands
constexpr size_t kBarrenBytes = 64u << 10;            // of records in a row that carry nothing for the owner
constexpr Duration kFarewell = std::chrono::seconds(1);

TlsFailure failure_of_verify(long result) noexcept {
  switch (result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: return TlsFailure::certificate_expired;
    case X509_V_ERR_CERT_REVOKED: return TlsFailure::certificate_revoked;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return TlsFailure::server_name;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: return TlsFailure::certificate_unknown_ca;
    default: return TlsFailure::certificate_bad;
  }
}

TlsFailure failure_of(int reason, const SSL* ssl) noexcept {
  switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_PACKET_LENGTH_TOO_LONG: return TlsFailure::not_tls;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW: return TlsFailure::version;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS: return TlsFailure::cipher;
    case SSL_R_NO_APPLICATION_PROTOCOL: return TlsFailure::alpn;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return TlsFailure::certificate_missing;
    case SSL_R_CERTIFICATE_VERIFY_FAILED: return failure_of_verify(SSL_get_verify_result(ssl));
    default: return reason >= SSL_AD_REASON_OFFSET ? TlsFailure::peer_alert : TlsFailure::protocol;
  }
}

std::string text_written(const auto& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  if (bio == nullptr) return {};
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string out(data, static_cast<size_t>(size));
  BIO_free(bio);
  return out;
}

std::unique_ptr<const TlsPeerCertificate> peer_of(const SSL* ssl) {
  static constexpr char kHex[] = "0123456789abcdef";
  X509* x = SSL_get0_peer_certificate(ssl);
  if (x == nullptr) return nullptr;
  auto out = std::make_unique<TlsPeerCertificate>();
  out->subject = text_written([&](BIO* bio) { X509_NAME_print_ex(bio, X509_get_subject_name(x), 0, XN_FLAG_RFC2253); });
  const int san = X509_get_ext_by_NID(x, NID_subject_alt_name, -1);
  if (san >= 0) out->san = text_written([&](BIO* bio) { X509V3_EXT_print(bio, X509_get_ext(x, san), 0, 0); });
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  X509_digest(x, EVP_sha256(), digest, &size);
  for (unsigned i = 0; i < size; ++i) {
    out->fingerprint += kHex[digest[i] >> 4];
    out->fingerprint += kHex[digest[i] & 15];
  }
  out->serial = text_written([&](BIO* bio) { i2a_ASN1_INTEGER(bio, X509_get0_serialNumber(x)); });
  ERR_clear_error();
  return out;
}

}  // namespace

const char* tls_failure_name(TlsFailure failure) noexcept {
  static constexpr std::array<const char*, kTlsFailures> kNames = {
      "closed", "timeout", "not_tls", "version", "cipher", "alpn", "server_name", "peer_alert", "certificate_missing",
      "certificate_expired", "certificate_unknown_ca", "certificate_revoked", "certificate_bad", "protocol", "memory"};
  return kNames[static_cast<size_t>(failure)];
}

// ---- TlsTurns

TlsTurns::TlsTurns(Loop& loop) noexcept : loop_(loop) {
  next_tick_.self = serve_.self = this;
  // Frees come last in a tick: a pump that is marked there runs in the next one.
  next_tick_.release = [](Slot& slot) noexcept {
    TlsTurns& self = *static_cast<NextTick&>(slot).self;
    self.queued_ = false;
    self.loop_.mark_dirty(self.serve_);
  };
  serve_.pump = [](Pump& pump) noexcept { static_cast<Serve&>(pump).self->serve(); };
}

TlsTurns::~TlsTurns() {
  loop_.forget_dirty(serve_);
  WEIR_ASSERT(first_ == nullptr);
}

bool TlsTurns::take(TlsTransport& who) noexcept {
  if (tick_ != loop_.now()) {
    tick_ = loop_.now();
    left_ = per_tick;
  }
  if (left_ != 0) {
    --left_;
    return true;
  }
  if (!who.waiting_turn_) {
    who.waiting_turn_ = true;
    who.next_turn_ = nullptr;
    (last_ != nullptr ? last_->next_turn_ : first_) = &who;
    last_ = &who;
  }
  if (!std::exchange(queued_, true)) loop_.free_later(next_tick_);
  return false;
}

void TlsTurns::leave(TlsTransport& who) noexcept {
  if (!std::exchange(who.waiting_turn_, false)) return;
  TlsTransport* before = nullptr;
  for (TlsTransport* one = first_; one != &who; one = one->next_turn_) before = one;
  (before != nullptr ? before->next_turn_ : first_) = who.next_turn_;
  if (last_ == &who) last_ = before;
}

void TlsTurns::serve() noexcept {
  tick_ = loop_.now();
  left_ = per_tick;
  while (first_ != nullptr && left_ != 0) {
    TlsTransport& who = *first_;
    leave(who);
    who.work();
  }
  if (first_ != nullptr && !std::exchange(queued_, true)) loop_.free_later(next_tick_);
}

// ---- TlsTransport

TlsTransport::TlsTransport(Loop& loop, Transport& inner, TransportOwner& owner, const TlsSetup& setup, Side side) noexcept
    : loop_(loop), inner_(inner), owner_(&owner), setup_(setup), side_(side) {
  wire_.out = &inner.out();
  wire_.slabs = &loop.slabs();
  work_.self = due_.self = this;
  work_.pump = work_entry;
  due_.fire = due_entry;
}

TlsTransport::~TlsTransport() {
  setup_.turns->leave(*this);
  loop_.forget_dirty(work_);
  loop_.forget_timer(due_);
  SSL_free(ssl_);
}

void TlsTransport::start(const char* server_name) noexcept {
  ssl_ = setup_.context.connection();
  BIO* bio = ssl_ == nullptr ? nullptr : make_tls_bio(wire_);
  loop_.mark_dirty(work_);
  if (bio == nullptr) {
    fail(TlsFailure::memory, "no memory", ENOMEM);
    return;
  }
  SSL_set_bio(ssl_, bio, bio);
  if (side_ == Side::server) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  if (server_name == nullptr) return;
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), server_name) == 1) return;
  ERR_clear_error();
  if (SSL_set_tlsext_host_name(ssl_, server_name) != 1 || SSL_set1_host(ssl_, server_name) != 1)
    fail(TlsFailure::memory, "no memory", ENOMEM);
}

void TlsTransport::work() noexcept {
  if (closing_) return;
  if (state_ == State::handshaking && handshake()) opened();
  if (state_ == State::open && !closing_) deliver();
  if (closing_) return;
  if (state_ == State::failed) {
    inner_.flush();  // the alert
    if (!std::exchange(told_, true)) owner_->on_error(error_, false);
    return;
  }
  if (state_ == State::open) encrypt();
  if (state_ != State::failed) arm();
}

bool TlsTransport::handshake() noexcept {
  if (side_ == Side::server || wire_.taken_bytes != 0 || SSL_get_state(ssl_) != TLS_ST_BEFORE) {
    if (wire_.in.empty()) {
      if (inner_.at_eof()) fail(TlsFailure::closed, "the peer closed the connection", ECONNRESET);
      return false;
    }
  }
  if (waiting_turn_ || !setup_.turns->take(*this)) return false;
  const int done = SSL_do_handshake(ssl_);
  if (done == 1) return true;
  if (SSL_get_error(ssl_, done) != SSL_ERROR_WANT_READ) fail_by_library();
  else if (inner_.at_eof()) fail(TlsFailure::closed, "the peer closed the connection", ECONNRESET);
  else inner_.flush();
  return false;
}

void TlsTransport::opened() noexcept {
  state_ = State::open;
  inner_.flush();
  facts_.version = SSL_get_version(ssl_);
  facts_.cipher = SSL_CIPHER_get_name(SSL_get_current_cipher(ssl_));
  if (const char* name = SSL_get_servername(ssl_, TLSEXT_NAMETYPE_host_name); name != nullptr) facts_.server_name = name;
  const unsigned char* alpn = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_, &alpn, &size);
  if (size != 0) facts_.alpn = {reinterpret_cast<const char*>(alpn), size};
  facts_.resumed = SSL_session_reused(ssl_) == 1;
  facts_.peer = peer_of(ssl_);
  (facts_.resumed ? setup_.stats->resumed : setup_.stats->full).add();
  taken_before_ = wire_.taken_bytes;
  owner_->on_ready();
}

void TlsTransport::deliver() noexcept {
  if (want_ == 0) return;
  Chain plain;
  const bool over = decrypt(plain);
  if (!plain.empty()) {
    want_ = 0;
    taken_before_ = wire_.taken_bytes;
    if (state_ == State::failed) loop_.mark_dirty(work_);  // the owner hears of it after its bytes
    owner_->on_bytes(std::move(plain));
  } else if (state_ == State::failed) {
    return;
  } else if (over || inner_.at_eof()) {
    want_ = 0;
    eof_ = true;
    truncated_ = !over;
    owner_->on_eof();
  } else if (wire_.taken_bytes - taken_before_ > kBarrenBytes) {
    fail(TlsFailure::protocol, "too many records without content", EPROTO);
  }
}

// As much as was asked for, as far as it came. true: the peer has said that this is the end.
bool TlsTransport::decrypt(Chain& plain) noexcept {
  Slab* slab = nullptr;
  const auto keep = [&] {
    if (slab == nullptr) return;
    const uint32_t used = slab->used;
    plain.append(Slice(std::exchange(slab, nullptr), 0, used));
  };
  bool over = false;
  for (size_t left = want_; left != 0;) {
    if (slab != nullptr && slab->used == kSlabBytes) keep();
    if (slab == nullptr && (slab = loop_.slabs().take()) == nullptr) {
      fail(TlsFailure::memory, "no memory", ENOBUFS);
      break;
    }
    size_t count = 0;
    if (SSL_read_ex(ssl_, slab->data + slab->used, std::min<size_t>(left, kSlabBytes - slab->used), &count) != 1) {
      const int why = SSL_get_error(ssl_, 0);
      over = why == SSL_ERROR_ZERO_RETURN;
      if (!over && why != SSL_ERROR_WANT_READ) fail_by_library();
      break;
    }
    slab->used += static_cast<uint32_t>(count);
    left -= count;
  }
  keep();
  return over;
}

size_t TlsTransport::record_bytes() noexcept {
  if (loop_.now() - sent_at_ > kQuiet && !inner_.sending()) burst_ = 0;
  return burst_ < kGrowAfterBytes ? kRecordBytesFirst : kRecordBytesMax;
}

// Where it stands, if it is large enough or all there is; else put together with what follows. Of a large slice that follows
// only so much is taken along that the rest of it still goes where it stands.
std::string_view TlsTransport::next_record(size_t most) noexcept {
  const Slice& front = out_.front();
  if (front.size() >= most || front.size() == out_.bytes() || front.size() >= kDirectBytes)
    return front.view().substr(0, most);
  size_t count = std::min(most, out_.bytes());
  const Slice& second = out_.first()->next->slice;
  if (out_.bytes() > most && second.size() >= kDirectBytes + kDirectBytes / 2)
    count = std::min(count, front.size() + kDirectBytes / 2);
  auto& gather = setup_.turns->gather_;
  return {gather.data(), out_.copy_out(gather.data(), 0, count)};
}

void TlsTransport::encrypt() noexcept {
  if (notified_) return;
  while (!out_.empty() && inner_.out().bytes() < kCipherBytesMax) {
    const std::string_view record = next_record(record_bytes());
    size_t done = 0;
    if (SSL_write_ex(ssl_, record.data(), record.size(), &done) != 1) {
      fail_by_library();
      loop_.mark_dirty(work_);
      return;
    }
    out_.consume(record.size());
    untold_ += record.size();
    burst_ += record.size();
    sent_at_ = loop_.now();
    if (++records_ < setup_.key_records) continue;
    records_ = 0;
    if (SSL_version(ssl_) == TLS1_3_VERSION) SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);  // goes with the next record
  }
  if (finish_ && out_.empty()) {
    say_farewell();
    inner_.finish_writing();
  } else {
    inner_.flush();
  }
}

void TlsTransport::say_farewell() noexcept {
  if (std::exchange(notified_, true)) return;
  if (SSL_shutdown(ssl_) < 0) ERR_clear_error();
}

void TlsTransport::read(uint32_t want) noexcept {
  if (want_ != 0 || eof_ || closing_ || state_ == State::failed) return;
  want_ = want;
  if (state_ == State::handshaking || !wire_.in.empty() || SSL_pending(ssl_) != 0 || inner_.at_eof()) loop_.mark_dirty(work_);
  else arm();
}

void TlsTransport::flush() noexcept {
  if (state_ == State::open && !closing_) encrypt();
}

void TlsTransport::finish_writing() noexcept {
  finish_ = true;
  flush();
}

// A record and what surrounds it, or a slab; what comes beyond `want` waits here.
void TlsTransport::arm() noexcept {
  if (inner_.reading() || inner_.at_eof() || waiting_turn_) return;
  if (state_ == State::handshaking) inner_.read(kSlabBytes);
  else if (want_ != 0) inner_.read(want_ <= kSlabBytes ? kSlabBytes : want_ + want_ / 64);
}

void TlsTransport::on_bytes(Chain&& bytes) noexcept {
  if (closing_) {
    bytes.clear();
    end_farewell();
    return;
  }
  if (wire_.in.empty()) wire_.in = std::move(bytes);
  else wire_.in.append_compact(loop_.slabs(), std::move(bytes));
  loop_.mark_dirty(work_);
}

void TlsTransport::on_eof() noexcept {
  if (closing_) end_farewell();
  else loop_.mark_dirty(work_);
}

void TlsTransport::on_sent(size_t count) noexcept {
  if (closing_) {
    end_farewell();
    return;
  }
  if (state_ != State::open) return;
  const size_t told = inner_.out().empty() ? untold_ : std::min(count, untold_);
  untold_ -= told;
  encrypt();
  if (told != 0) owner_->on_sent(told);
}

void TlsTransport::on_error(int error, bool sending) noexcept {
  if (closing_) {
    inner_.close(true);
    return;
  }
  if (state_ == State::open && sending) {  // what still comes may be of use
    out_.clear();
    owner_->on_error(error, true);
    return;
  }
  if (state_ != State::failed) fail(TlsFailure::closed, "the connection broke off", error);
  alert_ = false;
  if (!std::exchange(told_, true)) owner_->on_error(error, sending);
}

void TlsTransport::fail_by_library() noexcept {
  if (wire_.out_of_memory) {
    ERR_clear_error();
    fail(TlsFailure::memory, "no memory", ENOBUFS);
    return;
  }
  const unsigned long code = ERR_peek_error();
  const char* text = ERR_reason_error_string(code);
  const int reason = ERR_GET_REASON(code);
  ERR_clear_error();
  alert_ = true;
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) text = X509_verify_cert_error_string(SSL_get_verify_result(ssl_));
  fail(failure_of(reason, ssl_), text == nullptr ? "" : text, EPROTO);
}

void TlsTransport::fail(TlsFailure why, std::string_view text, int error) noexcept {
  const bool shaking = state_ == State::handshaking;
  state_ = State::failed;
  error_ = error;
  want_ = 0;
  if (!shaking) return;
  setup_.stats->failed[static_cast<size_t>(why)].add();
  if (setup_.failed == nullptr) return;
  const char* name = ssl_ == nullptr ? nullptr : SSL_get_servername(ssl_, TLSEXT_NAMETYPE_host_name);
  setup_.failed(setup_.arg, {why, text, name == nullptr ? std::string_view() : name}, *owner_);
}

void TlsTransport::close(bool reset) noexcept {
  if (closing_) return;
  closing_ = true;
  setup_.turns->leave(*this);
  if (state_ == State::handshaking) fail(TlsFailure::timeout, "it was not done in time", ETIMEDOUT);
  want_ = 0;
  out_.clear();
  wire_.in.clear();
  if (state_ == State::open && !reset && !notified_ && !inner_.sending() && inner_.out().empty()) {
    farewell_ = true;
    say_farewell();
  } else if (state_ == State::failed && alert_) {
    farewell_ = true;
    inner_.finish_writing();
  }
  if (!farewell_) {
    inner_.close(reset);
    return;
  }
  inner_.flush();
  loop_.set_timer(due_, loop_.now() + kFarewell);
  end_farewell();
}

// After close_notify nothing is awaited. After an alert the peer's end is: what it still sends would meet a closed socket, and the
// reset that follows would take the alert away from it.
void TlsTransport::end_farewell() noexcept {
  if (!farewell_ || inner_.closing()) return;
  const bool sent = inner_.out().empty() && !inner_.sending();
  if (sent && (state_ == State::open || inner_.at_eof())) inner_.close(false);
  else if (state_ == State::failed && !inner_.at_eof() && !inner_.reading()) inner_.read(kSlabBytes);
}

void TlsTransport::due_entry(Timer& timer) noexcept {
  TlsTransport& self = *static_cast<Due&>(timer).self;
  if (!self.inner_.closing()) self.inner_.close(true);
}

}  // namespace weir
