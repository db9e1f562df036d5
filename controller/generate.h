/* generate.h - /v1: runs the generations that an OpenAI request asks for and brings their text
 * back.
 *
 * One HTTP request becomes prompts x n requests of a node (controller/request.h), all of one
 * exchange; when the exchange ends for whatever reason, what still runs is cancelled.
 */
#ifndef CONTROLLER_GENERATE_H
#define CONTROLLER_GENERATE_H

struct exchange;

void generate_models(struct exchange *exchange);
void generate_model(struct exchange *exchange);
void generate_completion(struct exchange *exchange);
void generate_chat(struct exchange *exchange);

#endif
