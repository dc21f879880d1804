// TlsTicketKeys: the keys of the session tickets (RFC 5077, RFC 8446 section 4.6.1) of a whole process: a ticket that one worker
// made, any other takes, also after a reload. Newest first; tickets under an older one are taken and replaced.
// Owner: the supervisor, which rotates them every kTicketKeyLife; it outlives every context that uses them. Any thread: a lock
// that is held for a copy. A key that has been rotated out is wiped.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

struct ssl_st;
struct evp_cipher_ctx_st;
struct evp_mac_ctx_st;
struct ssl_ctx_st;

namespace weir {

inline constexpr std::chrono::hours kTicketKeyLife{6};
inline constexpr std::chrono::hours kTicketLife{12};   // what a ticket says; so its key is among the last three

class TlsTicketKeys {
 public:
  TlsTicketKeys();                 // one fresh key; without randomness the process ends
  ~TlsTicketKeys();
  TlsTicketKeys(const TlsTicketKeys&) = delete;
  TlsTicketKeys& operator=(const TlsTicketKeys&) = delete;
  void rotate();
  void use_in(ssl_ctx_st* context);

 private:
  struct Key {
    std::array<unsigned char, 16> name;
    std::array<unsigned char, 32> cipher, mac;
  };
  static int callback(ssl_st* ssl, unsigned char* name, unsigned char* iv, evp_cipher_ctx_st* cipher, evp_mac_ctx_st* mac,
                      int encrypt) noexcept;
  int find(const unsigned char* name, Key& key);   // 0: not known; 1: the newest; 2: an older one
  int own(Key& key);

  std::mutex lock_;
  std::array<Key, 3> keys_;
  size_t count_ = 0;
};

}  // namespace weir
