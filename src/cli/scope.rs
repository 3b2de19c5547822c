//! `dhara scope`: scopes, the folders of streams.

use super::{CliError, Target};
use clap::{Args, Subcommand};
use serde_json::json;

#[derive(Debug, Subcommand)]
pub(super) enum ScopeCommand {
    /// Creates a scope; one that exists is no error.
    Create(Named),
    /// Lists all scopes.
    List(Target),
    /// Deletes an empty scope.
    Delete(Named),
    /// Says whether a scope exists; exit status 1 if it does not.
    Exists(Named),
}

#[derive(Args, Debug)]
pub(super) struct Named {
    /// The scope's name.
    scope: String,
    #[command(flatten)]
    target: Target,
}

impl ScopeCommand {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Create(named) => named.create().await,
            Self::List(target) => list(&target).await,
            Self::Delete(named) => named.delete().await,
            Self::Exists(named) => named.exists().await,
        }
    }
}

impl Named {
    async fn create(self) -> Result<(), CliError> {
        let scope = &self.scope;
        let created = self.target.client().await?.admin().create_scope(scope).await?;
        let line = if created { format!("created {scope}") } else { format!("{scope} exists") };
        let mut output = self.target.output();
        output.put(&line, &json!({ "scope": scope, "created": created }))?;
        output.flush()
    }

    async fn delete(self) -> Result<(), CliError> {
        let scope = &self.scope;
        if !self.target.client().await?.admin().delete_scope(scope).await? {
            return Err(CliError::Missing { what: format!("scope {scope}") });
        }
        let mut output = self.target.output();
        output.put(&format!("deleted {scope}"), &json!({ "scope": scope, "deleted": true }))?;
        output.flush()
    }

    async fn exists(self) -> Result<(), CliError> {
        let scope = &self.scope;
        let exists = self.target.client().await?.admin().scope_exists(scope).await?;
        if !exists && !self.target.json {
            return Err(CliError::Missing { what: format!("scope {scope}") });
        }
        let mut output = self.target.output();
        output.put(&format!("{scope} exists"), &json!({ "scope": scope, "exists": exists }))?;
        output.flush()
    }
}

async fn list(target: &Target) -> Result<(), CliError> {
    let mut output = target.output();
    for scope in target.client().await?.admin().scopes().await? {
        output.put(&scope, &json!({ "scope": scope }))?;
    }
    output.flush()
}
