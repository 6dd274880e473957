//! Resolver, MX selection and mail's DNS policies.
