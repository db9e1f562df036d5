/* notify.h - tells the service manager how the daemon is (the sd_notify datagram, systemd's
 * sd_notify(3)). */
#ifndef CONTROLLER_NOTIFY_H
#define CONTROLLER_NOTIFY_H

/* Send e.g. "READY=1" to $NOTIFY_SOCKET; does nothing where there is none. */
void notify_manager(const char *state);

#endif
