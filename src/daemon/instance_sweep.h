/* Removes instances that were made for this daemon and belong to no session of it, at its start and every minute. It
 * also checks whether the server can make virtual machines (remote_link.h, vm_trouble). */
#pragma once

struct session_manager;

void instance_sweep(struct session_manager *manager);
