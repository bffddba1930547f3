/* Instances that were made for sessions of this daemon and that it does not know any more: removed, at its start and
 * every minute. The server is asked then, too, whether it can make virtual machines (remote_link.h, vm_trouble). */
#pragma once

struct session_manager;

void instance_sweep(struct session_manager *manager);
