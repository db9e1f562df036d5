/* api.h - the control API of docs/api.md over struct node: the handlers that controller/routes.c
 * names. */
#ifndef CONTROLLER_API_H
#define CONTROLLER_API_H

struct exchange;

void api_health(struct exchange *exchange);
void api_version(struct exchange *exchange);
void api_nodes(struct exchange *exchange);
void api_snapshot(struct exchange *exchange);
void api_stream(struct exchange *exchange);
void api_history(struct exchange *exchange);
void api_decisions(struct exchange *exchange);
void api_past(struct exchange *exchange);
void api_requests(struct exchange *exchange);
void api_cost(struct exchange *exchange);
void api_calibration(struct exchange *exchange);
void api_settings(struct exchange *exchange);
void api_set(struct exchange *exchange);
void api_set_mode(struct exchange *exchange);
void api_cancel(struct exchange *exchange);

#endif
