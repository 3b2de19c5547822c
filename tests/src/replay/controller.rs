//! Runs the steps of a controller transcript: gRPC calls, REST requests, and wire steps in between.

use super::Failure;
use super::pattern::{Variables, brief, differs, integer, pick, plain, same, substitute};
use super::rpc::{Call, Controller};
use super::value::{Scope, Value, unhex};
use super::wire::{Outcome, WireRun};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Pages after which a listing counts as endless.
const PAGES_MAX: usize = 10_000;
/// How long a `wait` goes on if it does not say.
const WAIT_S: f64 = 30.0;

/// The servers that a scenario talks to.
#[derive(Clone)]
pub struct Servers {
    /// The controller.
    pub controller: Controller,
    /// Segment store, `HOST:PORT`.
    pub store: String,
    /// REST, `http://HOST:PORT`.
    pub rest: String,
}

/// What a call or request brought.
#[derive(Debug)]
enum Answer {
    Reply(Json),
    Status(String, String),
    Http(u16, Json),
}

type Step = Map<String, Json>;

struct Run {
    servers: Servers,
    variables: Variables,
}

/// Runs one scenario.
pub async fn run_scenario(servers: &Servers, run: String, scenario: &Json) -> Outcome {
    let mut variables = Variables::from([("run".to_owned(), Json::String(run))]);
    for (name, value) in scenario["vars"].as_object().into_iter().flatten() {
        variables.insert(name.clone(), value.clone());
    }
    let mut running = Run { servers: servers.clone(), variables };
    for (at, step) in scenario["steps"].as_array().into_iter().flatten().enumerate() {
        if let Err(error) = Box::pin(running.step(step)).await {
            let note = step["note"].as_str().map(|note| format!(" ({note})")).unwrap_or_default();
            let error = error.context(format!("step {}{note} {}", at + 1, brief(step)));
            return Outcome::Failed(format!("{error:#}"));
        }
    }
    Outcome::Passed
}

impl Run {
    async fn step(&mut self, step: &Json) -> Result<()> {
        let step = step.as_object().context("a step is an object")?;
        if let Some(wait) = step.get("wait") {
            self.wait(wait.as_object().context("wait")?, step).await
        } else if let Some(ms) = step.get("sleep_ms") {
            tokio::time::sleep(Duration::from_millis(ms.as_u64().context("sleep_ms")?)).await;
            Ok(())
        } else if let Some(calls) = step.get("concurrent") {
            self.concurrent(calls).await
        } else if let Some(page) = step.get("page") {
            self.page(page).await
        } else if let Some(set) = step.get("set") {
            let set = substitute(set, &self.variables)?;
            self.variables.extend(set.as_object().cloned().into_iter().flatten());
            Ok(())
        } else if let Some(steps) = step.get("wire") {
            self.wire(steps).await
        } else {
            let answer = self.answer(step).await?;
            if let Some(why) = self.verdict(step, &answer)? {
                return Err(Failure(why).into());
            }
            self.capture(step, &answer)
        }
    }

    async fn answer(&self, step: &Step) -> Result<Answer> {
        if let Some(rest) = step.get("rest") {
            return self.rest(&substitute(rest, &self.variables)?).await;
        }
        let call = self.call(step)?;
        Ok(match self.servers.controller.call(&call).await? {
            Ok(reply) => Answer::Reply(reply),
            Err((code, message)) => Answer::Status(code, message),
        })
    }

    fn call(&self, step: &Step) -> Result<Call> {
        let rpc = step.get("rpc").and_then(Json::as_str).context("a step that is none of the known ones")?;
        let metadata = step.get("metadata").map_or(Ok(Json::Null), |all| substitute(all, &self.variables))?;
        Ok(Call {
            rpc: rpc.to_owned(),
            request: step.get("request").map_or(Ok(Json::Null), |all| substitute(all, &self.variables))?,
            raw: step.get("raw").and_then(Json::as_str).map(unhex).transpose()?,
            metadata: pairs(&metadata),
            deadline: step.get("deadline_s").and_then(Json::as_f64).map(Duration::from_secs_f64),
        })
    }

    async fn rest(&self, request: &Json) -> Result<Answer> {
        let text = |name: &str| request[name].as_str().with_context(|| format!("rest.{name}"));
        let body = match (&request["raw"], &request["body"]) {
            (Json::String(raw), _) => raw.clone(),
            (_, Json::Null) => String::new(),
            (_, body) => body.to_string(),
        };
        let headers = pairs(&request["headers"]);
        let base = &self.servers.rest;
        let (code, body) =
            super::rest::request(base, text("method")?, text("path")?, &headers, &body).await?;
        Ok(Answer::Http(code, body))
    }

    /// `None` if the answer is what `step` demands.
    fn verdict(&self, step: &Step, answer: &Answer) -> Result<Option<String>> {
        if let Some(options) = step.get("any_of").and_then(Json::as_array) {
            let mut whys = Vec::new();
            for option in options {
                let mut option = option.as_object().context("an alternative is an object")?.clone();
                if step.contains_key("rest") {
                    option.insert("rest".to_owned(), Json::Null);
                }
                match self.verdict(&option, answer)? {
                    None => return Ok(None),
                    Some(why) => whys.push(why),
                }
            }
            return Ok(Some(format!("none of the allowed replies: {}", whys.join(" | "))));
        }
        let reply = match answer {
            Answer::Http(code, body) => {
                if let Some(want) = step.get("code")
                    && !same(want, &json!(code))
                {
                    return Ok(Some(format!("expected HTTP {want}, got {code} {}", brief(body))));
                }
                body
            }
            Answer::Status(code, message) => {
                let fits = step.get("status").is_some_and(|want| want == code.as_str());
                return Ok((!fits).then(|| {
                    let want = step.get("status").or_else(|| step.get("expect")).map(brief);
                    format!("gRPC status {code} ({message}), expected {}", want.unwrap_or_default())
                }));
            }
            Answer::Reply(reply) => match step.get("status") {
                Some(want) => {
                    return Ok(Some(format!("expected gRPC status {want}, got {}", brief(reply))));
                }
                None => reply,
            },
        };
        match step.get("expect") {
            Some(want) => differs(&substitute(want, &self.variables)?, Some(reply), ""),
            None => Ok(None),
        }
    }

    fn capture(&mut self, step: &Step, answer: &Answer) -> Result<()> {
        let (Answer::Reply(reply) | Answer::Http(_, reply)) = answer else { return Ok(()) };
        for (name, path) in step.get("capture").and_then(Json::as_object).into_iter().flatten() {
            let value = pick(reply, path.as_str().context("capture has a path")?)?.clone();
            self.variables.insert(name.clone(), value);
        }
        Ok(())
    }

    async fn wait(&mut self, wait: &Step, step: &Step) -> Result<()> {
        let limit = wait.get("timeout_s").and_then(Json::as_f64).unwrap_or(WAIT_S);
        let pause = Duration::from_millis(wait.get("every_ms").and_then(Json::as_u64).unwrap_or(50));
        let end = Instant::now() + Duration::from_secs_f64(limit);
        let mut want = Step::new();
        for (from, to) in [("until", "expect"), ("code", "code"), ("status", "status")] {
            if let Some(value) = wait.get(from) {
                want.insert(to.to_owned(), value.clone());
            }
        }
        loop {
            let answer = self.answer(wait).await?;
            let Some(why) = self.verdict(&want, &answer)? else {
                self.capture(step, &answer)?;
                return self.capture(wait, &answer);
            };
            if Instant::now() > end {
                return Err(Failure(format!("not reached within {limit} s: {why}")).into());
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Follows continuation tokens to the first empty page and checks the whole listing.
    async fn page(&self, page: &Json) -> Result<()> {
        let list = page["list"].as_str().context("page.list")?;
        let entries_max = page["max_page"].as_u64().unwrap_or(1000);
        let mut request = match &page["request"] {
            Json::Null => json!({}),
            request => substitute(request, &self.variables)?,
        };
        let mut entries = Vec::new();
        let mut tokens = BTreeSet::new();
        let mut token = String::new();
        loop {
            request["continuationToken"] = json!({ "token": token });
            let rpc = page["rpc"].as_str().context("page.rpc")?.to_owned();
            let call = Call { rpc, request: request.clone(), ..Call::default() };
            let reply = match self.servers.controller.call(&call).await? {
                Ok(reply) => reply,
                Err((code, message)) => bail!(Failure(format!("gRPC status {code} ({message})"))),
            };
            let next = reply["continuationToken"]["token"].as_str();
            next.ok_or_else(|| Failure("a page without continuation token".to_owned()))?
                .clone_into(&mut token);
            let rows = reply[list].as_array().context("the listing is a list")?;
            if rows.is_empty() {
                break;
            }
            if u64::try_from(rows.len())? > entries_max {
                bail!(Failure(format!("a page of {} entries", rows.len())));
            }
            entries.extend_from_slice(rows);
            if !tokens.insert(token.clone()) || tokens.len() > PAGES_MAX {
                bail!(Failure("token repeated: a client would never end".to_owned()));
            }
        }
        let distinct: BTreeSet<String> = entries.iter().map(Json::to_string).collect();
        if distinct.len() != entries.len() {
            bail!(Failure("an entry is listed twice".to_owned()));
        }
        let want = substitute(&page["expect"], &self.variables)?;
        match differs(&want, Some(&Json::Array(entries)), list)? {
            Some(why) => Err(Failure(why).into()),
            None => Ok(()),
        }
    }

    /// Makes calls at the same time and counts the values of one field of their replies.
    async fn concurrent(&self, concurrent: &Json) -> Result<()> {
        let calls = if let Some(calls) = concurrent["calls"].as_array() {
            calls.clone()
        } else {
            let count = usize::try_from(concurrent["count"].as_u64().context("concurrent.count")?)?;
            vec![concurrent.clone(); count]
        };
        let mut running = Vec::new();
        for call in &calls {
            let call = self.call(call.as_object().context("a call is an object")?)?;
            let controller = self.servers.controller.clone();
            running.push(tokio::spawn(async move { controller.call(&call).await }));
        }
        let field = concurrent["field"].as_str().unwrap_or_default();
        let mut tally: BTreeMap<String, u64> = BTreeMap::new();
        for call in running {
            let value = match call.await?? {
                Ok(reply) => plain(pick(&reply, field)?),
                Err((code, _)) => code,
            };
            *tally.entry(value).or_default() += 1;
        }
        for allowed in concurrent["tally"].as_array().context("concurrent.tally")? {
            let names = allowed.as_object().context("a tally is an object")?;
            let mut counts: BTreeMap<&str, u64> = names.keys().map(|name| (name.as_str(), 0)).collect();
            counts.extend(tally.iter().map(|(name, count)| (name.as_str(), *count)));
            let known = tally.keys().all(|name| names.contains_key(name));
            if known && differs(allowed, Some(&json!(counts)), "")?.is_none() {
                return Ok(());
            }
        }
        Err(Failure(format!("replies {tally:?}, allowed {}", concurrent["tally"])).into())
    }

    /// Runs wire steps with the variables of this scenario; what they capture stays.
    async fn wire(&mut self, steps: &Json) -> Result<()> {
        let mut scope = Scope::new(self.variables.get("run").map(plain).unwrap_or_default());
        for (name, value) in &self.variables {
            let value = match (integer(value), value) {
                (Some(n), _) => Value::Int(n),
                (None, Json::String(text)) => Value::Text(text.clone()),
                _ => continue,
            };
            scope.variables.insert(name.clone(), value);
        }
        let mut wire = WireRun::new(&self.servers.store, scope);
        wire.run(steps).await?;
        for (name, value) in wire.scope.variables {
            let value = match value {
                Value::Int(n) => json!(n),
                Value::Text(text) => json!(text),
                _ => continue,
            };
            self.variables.entry(name).or_insert(value);
        }
        Ok(())
    }
}

fn pairs(json: &Json) -> Vec<(String, String)> {
    json.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), plain(value))).collect()
}
