// What systemd is told (sd_notify(3)): a datagram to $NOTIFY_SOCKET, nothing where it is not set.
// Caller: the supervisor's thread. It never blocks and never fails the daemon: a lost notice is systemd's to notice.
#pragma once

#include <string_view>

namespace weir::notify {

void send(std::string_view state);   // "READY=1\nSTATUS=..."
void ready(std::string_view status);
void reloading();                    // RELOADING=1 with MONOTONIC_USEC, as Type=notify-reload asks
void stopping(std::string_view status);

}  // namespace weir::notify
